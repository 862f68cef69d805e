"""What each command of `corral bench` does; `cli` has their options."""
