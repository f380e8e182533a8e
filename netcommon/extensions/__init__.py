"""Where the site's own modules are loaded (netcommon.extending). There are none of ours here, and this one holds nothing: a module of the
site becomes an attribute of it, whatever its name is."""
