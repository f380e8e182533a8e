"""Read and change this Linux machine: tables of the kernel, files and daemons."""
