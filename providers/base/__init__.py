"""The ground floor: configuration, databases, disk, keys and limits. It knows no provider."""
