//! The resources.

use rmcp::{
    ErrorData,
    model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate},
};
use serde_json::json;

use crate::content::PNG;

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";
const WATCHED: &str = "test://watched-resource";

pub(crate) fn listed() -> Vec<Resource> {
    vec![
        Resource::new(TEXT, "static-text").with_description("A text").with_mime_type("text/plain"),
        Resource::new(BINARY, "static-binary").with_description("An image").with_mime_type("image/png"),
        Resource::new(WATCHED, "watched").with_description("A text to subscribe to").with_mime_type("text/plain"),
    ]
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let template = ResourceTemplate::new("test://template/{id}/data", "template");
    vec![template.with_description("The data of an id").with_mime_type("application/json")]
}

pub(crate) fn read(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let contents = match uri {
        TEXT => ResourceContents::text("This is the content of the static text resource.", uri),
        WATCHED => ResourceContents::text("Nothing happens here.", uri),
        BINARY => return Ok(just(ResourceContents::blob(PNG, uri).with_mime_type("image/png"))),
        _ => return templated(uri),
    };
    Ok(just(contents.with_mime_type("text/plain")))
}

fn templated(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    let Some(id) = id else {
        return Err(ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": uri }))));
    };
    let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
    Ok(just(ResourceContents::text(data.to_string(), uri).with_mime_type("application/json")))
}

fn just(contents: ResourceContents) -> ReadResourceResult {
    ReadResourceResult::new(vec![contents])
}
