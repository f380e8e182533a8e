"""Deal with other programs: run them within a limit of time, tell the service manager how we are, bind sockets to be asked on."""
