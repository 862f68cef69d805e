"""Sources: folders, object stores, git repositories, web sites and feeds, kept in step."""
