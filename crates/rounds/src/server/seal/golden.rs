//! Golden files, in tests: what is written and read, byte by byte. `golden-1` files have the previous
//! [`Format`](super::Format), `golden-2` files the current one.

/// The bytes of a line of hexadecimal digits.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.trim().as_bytes().chunks(2).map(byte).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
