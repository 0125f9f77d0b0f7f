//! Numbers with all of their digits, for programs in which `serde_json` keeps them. Integers of 64 bits and doubles
//! have the same digests as in every other program; other numbers have an encoding of their own.

use super::digest::{BEYOND_INTEGERS, spell_double, spell_integer, spell_length};

/// Writes a JSON number by its meaning: equal numbers give equal bytes and different numbers different bytes.
pub(super) fn spell(text: &str, out: &mut Vec<u8>) {
    let Some(decimal) = Decimal::read(text) else {
        // Its exponent is too long to compute with, so the number is compared by its text.
        out.push(b'w');
        spell_length(text.len(), out);
        out.extend_from_slice(text.as_bytes());
        return;
    };
    if let Some(integer) = decimal.integer() {
        return spell_integer(integer, out);
    }
    match text.parse::<f64>() {
        // Many numbers are read as this double, and one of them is how the double is written. Only that one is the
        // double.
        Ok(double) if double.is_finite() && Decimal::read(&format!("{double:e}")) == Some(decimal.clone()) => {
            spell_double(double, out);
        }
        _ => decimal.spell(out),
    }
}

/// A number: its digits as an integer, times a power of ten. The first and the last digit are not zero, and zero has no
/// digits.
#[derive(Clone, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Reads a number. None if its exponent is too long to compute with.
    fn read(text: &str) -> Option<Self> {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let digits = all.trim_start_matches('0').trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits: String::new(), exponent: 0 });
        }
        let dropped = all.len() - all.trim_end_matches('0').len();
        let shift = i64::try_from(dropped).ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        let exponent = exponent.parse::<i64>().ok()?.checked_add(shift)?;
        Some(Self { is_negative, digits: digits.to_owned(), exponent })
    }

    /// The integer value, if it is an integer of 64 bits and a sign.
    fn integer(&self) -> Option<i128> {
        if self.digits.is_empty() {
            return Some(0);
        }
        let power = 10_u128.checked_pow(u32::try_from(self.exponent).ok()?)?;
        let integer =
            self.digits.parse::<u128>().ok()?.checked_mul(power).filter(|integer| *integer < BEYOND_INTEGERS)?;
        let integer = i128::try_from(integer).ok()?;
        Some(if self.is_negative { -integer } else { integer })
    }

    fn spell(&self, out: &mut Vec<u8>) {
        out.push(if self.is_negative { b'm' } else { b'p' });
        spell_length(self.digits.len(), out);
        out.extend_from_slice(self.digits.as_bytes());
        out.extend_from_slice(&self.exponent.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        spell(text, &mut out);
        out
    }

    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        for same in [
            &["0", "-0", "0.0", "-0.000", "0e400", "0E-5"][..],
            &["1", "1.0", "1e0", "10e-1", "0.01e2", "100E-2"],
            &["-25", "-2.5e1", "-25.00"],
            &["18446744073709551615", "1.8446744073709551615e19"],
            &["1.5", "15e-1", "0.15E+1"],
            &["1e400", "10e399", "0.1e401"],
            &["340282366920938463463374607431768211456", "3.40282366920938463463374607431768211456e38"],
        ] {
            for one in same {
                assert_eq!(spelled(one), spelled(same[0]), "{one} and {}", same[0]);
            }
        }
    }

    #[test]
    fn no_two_numbers_are_the_same() {
        let all = [
            "0",
            "1",
            "-1",
            "1e400",
            "-1e400",
            "1e401",
            "1e-400",
            "-1e-400",
            "1e99999999999999999999",
            "1e99999999999999999998",
            "-1e99999999999999999999",
            "1e9223372036854775807",
            "9007199254740992",
            "9007199254740993",
            "9007199254740993.0000000001",
            "18446744073709551615",
            "18446744073709551616",
            "18446744073709551617",
            "-18446744073709551616",
            "-18446744073709551617",
            "170141183460469231731687303715884105727",
            "170141183460469231731687303715884105728",
            "170141183460469231731687303715884105729",
            "340282366920938463463374607431768211455",
            "340282366920938463463374607431768211456",
            "0.1",
            "0.1000000000000000055511151231257827",
            "0.10000000000000000555111512312578270211815834045410156250",
            "1e22",
            "1e23",
            "99999999999999991611392",
            "99999999999999991611393",
        ];
        for (i, one) in all.iter().enumerate() {
            for (j, other) in all.iter().enumerate() {
                assert_eq!(i == j, spelled(one) == spelled(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn a_double_and_an_integer_are_spelled_as_in_every_other_program() {
        for double in [1.5, -0.1, 1e300, 5.026_328_072_615_54e-296, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e23] {
            let mut expected = Vec::new();
            spell_double(double, &mut expected);
            assert_eq!(spelled(&double.to_string()), expected, "{double}");
            assert_eq!(spelled(&format!("{double:e}")), expected, "{double}");
        }
        for integer in [0, 1, -1, i128::from(i64::MIN), i128::from(u64::MAX)] {
            let mut expected = Vec::new();
            spell_integer(integer, &mut expected);
            assert_eq!(spelled(&integer.to_string()), expected, "{integer}");
        }
    }

    /// A million digits are quick to write, and an exponent is never expanded.
    #[test]
    fn what_is_long_takes_no_longer_than_it_is() {
        let long = format!("{}.{}e-99", "9".repeat(500_000), "7".repeat(500_000));
        assert!((1_000_000..1_000_100).contains(&spelled(&long).len()));
        assert!(spelled("1e999999999999999999").len() < 32);
        assert!(spelled("-1e-999999999999999999").len() < 32);
    }
}
