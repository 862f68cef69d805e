"""Sources that vector DBs are synced with: folders, buckets, git repositories, sites and feeds."""
