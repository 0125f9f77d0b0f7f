//! Fuzz targets as ordinary tests: each runs on the files of its corpus and on changes of them, the same ones every time.
//! `cargo xtask fuzz` runs the same targets with libFuzzer, which looks for inputs that reach new code.

use std::{fs, panic::catch_unwind, path::Path};

/// Runs a target on every file of its corpus in `fuzz/corpus`, and on this many changes of them.
///
/// # Panics
///
/// If the target panics: the message has the input, which belongs into the corpus once the fault is mended.
pub fn fuzz(name: &str, target: fn(&[u8]), changes: u32) {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "the target `{name}` has no corpus in fuzz/corpus/{name}");
    for input in &corpus {
        run(name, target, input);
    }
    let mut numbers = Numbers(name.bytes().fold(1u64, |seed, byte| seed.wrapping_mul(31) + u64::from(byte)));
    for _ in 0..changes {
        let mut input = corpus[numbers.below(corpus.len())].clone();
        for _ in 0..=numbers.below(4) {
            change(&mut input, &corpus, &mut numbers);
        }
        run(name, target, &input);
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path()).collect();
    // The same order on every machine.
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn run(name: &str, target: fn(&[u8]), input: &[u8]) {
    if catch_unwind(|| target(input)).is_err() {
        panic!("the target `{name}` fails on b\"{}\"", input.escape_ascii());
    }
}

/// Bytes and words that mean something to a parser.
const WORDS: [&[u8]; 20] = [
    b"\0",
    b"\xff",
    b"\x80",
    b"\xff\xff\xff\xff\x0f",
    b"\xf0\x9f",
    b"\n",
    b"\r\n\r\n",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"\\ud800",
    b":",
    b",",
];

/// Changes an input in one place.
fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], numbers: &mut Numbers) {
    let at = numbers.below(input.len() + 1);
    let upto = (at + numbers.below(16)).min(input.len());
    match numbers.below(6) {
        0 if at < input.len() => input[at] ^= 1 << numbers.below(8),
        1 if at < input.len() => input[at] = numbers.below(256) as u8,
        2 => drop(input.drain(at..upto)),
        3 => drop(input.splice(at..at, WORDS[numbers.below(WORDS.len())].iter().copied())),
        4 => {
            let again = input[at..upto].to_vec();
            input.splice(at..at, again);
        }
        _ => {
            let other = &corpus[numbers.below(corpus.len())];
            input.truncate(at);
            input.extend(&other[numbers.below(other.len() + 1)..]);
        }
    }
}

/// SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % end.max(1) as u64) as usize
    }
}
