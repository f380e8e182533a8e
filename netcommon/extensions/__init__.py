"""Hold the site's own modules, once they are loaded (netcommon.extension_loader). Each becomes an attribute of this one, whatever its name
is; so nothing of ours is in here.
"""
