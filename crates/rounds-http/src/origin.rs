//! Checks whether a request comes from a page of the server itself. Browsers send the page's origin in `Origin`; other
//! clients usually send none.

use http::{HeaderMap, Uri, header, uri::Authority};

/// Whether a request may be served without consulting the list of allowed origins: it has no origin, or the server's
/// own. A server that is reached at a loopback address also serves pages of loopback origins, such as an inspector.
///
/// An origin that cannot be parsed is not the server's own.
pub(crate) fn is_own(uri: &Uri, headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let host = headers.get(header::HOST).map_or_else(|| uri.authority().cloned(), |host| read(host.as_bytes()));
    let origin = origin.to_str().ok().and_then(|origin| Uri::try_from(origin.trim()).ok());
    let (Some(host), Some(origin)) = (host, origin) else { return false };
    let (Some(page), Some(port)) = (origin.authority(), origin.scheme_str().and_then(default_port)) else {
        return false;
    };
    let port_of = |authority: &Authority| authority.port_u16().unwrap_or(port);
    let is_same = page.host().eq_ignore_ascii_case(host.host()) && port_of(page) == port_of(&host);
    is_same || (is_loopback(page) && is_loopback(&host))
}

/// Whether rmcp serves a page of this origin by this list. Both are compared as they are written; what would have to be normalised first is not
/// on the list.
pub(crate) fn is_listed(origin: &str, list: &[String]) -> bool {
    let Some((scheme, port)) = ["http", "https"].into_iter().find_map(|scheme| {
        let rest = origin.strip_prefix(scheme)?.strip_prefix("://")?;
        Some((scheme, is_plain(rest)?))
    }) else {
        return false;
    };
    let without_port = port.map_or(origin, |port| &origin[..origin.len() - port.len() - 1]);
    let default = default_port(scheme);
    list.iter().any(|listed| match listed.strip_prefix(without_port) {
        // Without a port in the list, every port is served.
        Some("" | ":*") => true,
        Some(rest) => {
            let port = port.and_then(|port| port.parse().ok()).or(default);
            rest.strip_prefix(':')
                .and_then(|listed| listed.parse::<u16>().ok())
                .is_some_and(|listed| Some(listed) == port)
        }
        None => false,
    })
}

/// The port in an authority, or that it has none, if it is a plain name in lower case with nothing else to it.
fn is_plain(authority: &str) -> Option<Option<&str>> {
    let (name, port) = authority.split_once(':').map_or((authority, None), |(name, port)| (name, Some(port)));
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    (!name.is_empty() && name.bytes().all(is_name) && port.is_none_or(is_port)).then_some(port)
}

fn read(host: &[u8]) -> Option<Authority> {
    Authority::try_from(host).ok()
}

/// The port of an origin that names none. A server behind a proxy does not know which scheme the client uses, and both
/// default ports count as its own.
fn default_port(scheme: &str) -> Option<u16> {
    let schemes = [("http", 80), ("https", 443)];
    schemes.into_iter().find_map(|(name, port)| scheme.eq_ignore_ascii_case(name).then_some(port))
}

/// Whether this is one of the loopback names that rmcp serves by default.
fn is_loopback(authority: &Authority) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| authority.host().eq_ignore_ascii_case(name))
}
