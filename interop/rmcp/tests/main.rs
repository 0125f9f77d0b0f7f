//! rmcp's tests, each file a module. `cargo xtask rmcp` says where they are.
#![allow(warnings)]

include!(env!("RMCP_TESTS"));
