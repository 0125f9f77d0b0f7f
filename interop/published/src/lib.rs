//! Servers from crates.io that ask through their peer, wrapped in `Rounds`: see `tests/servers.rs`.
