//! The fields of a struct in the order of their declaration, which its schema does not keep.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
    forward_to_deserialize_any,
};

/// The names of a type's fields as they are in an answer, with their aliases. Empty for a type that is not a plain
/// struct, and for a struct with flattened parts.
pub(crate) fn fields<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &[&str] = &[];
    // Always fails: a struct passes its fields to the deserializer before it reads a value, and there is no value to
    // read.
    let _ = T::deserialize(Probe(&mut fields));
    fields
}

/// A deserializer without a value, which notes the fields of the struct.
struct Probe<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Nothing;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Nothing> {
        *self.0 = fields;
        Err(Nothing)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Nothing> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Nothing> {
        visitor.visit_some(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Nothing> {
        Err(Nothing)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

#[derive(Debug)]
struct Nothing;

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no value to read")
    }
}

impl std::error::Error for Nothing {}

impl de::Error for Nothing {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self
    }
}
