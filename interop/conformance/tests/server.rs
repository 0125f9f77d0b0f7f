//! The server that the suite is run against starts. (What it has to do is the suite's to say: `cargo xtask interop`, which
//! finds the server because this test has it built.)

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

#[test]
fn the_server_says_where_it_listens() {
    let mut server =
        Command::new(env!("CARGO_BIN_EXE_conformance-server")).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let port = line.strip_prefix("listening on http://127.0.0.1:").and_then(|rest| rest.strip_suffix("/mcp\n"));
    assert_ne!(port.unwrap().parse::<u16>().unwrap(), 0);
}
