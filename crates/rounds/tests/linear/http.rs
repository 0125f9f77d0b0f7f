//! Over streamable HTTP.
