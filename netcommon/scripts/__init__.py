"""Find the site's own scripts, put them in order, run them, and tell them from doors of ours."""
