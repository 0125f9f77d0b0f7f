//! The form model: what a host shows, and what it may send.

use rmcp::object;
use rounds::{
    client::{AnswerError, Call, Choice, Field, FieldKind, Pending, TextFormat, UserAnswer},
    form::InvalidAnswer,
    observe::QuestionKind,
};
use serde_json::{Value, json};

use crate::{Act, Raw, asked};

/// A pending call with one form of this schema.
async fn form(schema: Value) -> Pending {
    let (_raw, client) = Raw::modern(move |_| {
        let params = json!({"message": "Well?", "requestedSchema": schema});
        let asks = json!({"q": {"method": "elicitation/create", "params": params}});
        Act::Result(json!({"resultType": "input_required", "inputRequests": asks, "requestState": "s"}))
    })
    .await;
    asked(Call::tool("x", object!({})).send(&client).await.unwrap())
}

/// The only field of a form.
async fn field(schema: Value) -> Field {
    let pending = form(json!({"type": "object", "properties": {"f": schema}, "required": ["f"]})).await;
    pending.fields().next().unwrap().1.clone()
}

fn titles(choices: &[Choice]) -> Vec<(&str, &str)> {
    choices.iter().map(|choice| (choice.value.as_str(), choice.title.as_str())).collect()
}

#[tokio::test]
async fn a_field_has_a_label_words_a_default_and_may_be_left_out() {
    let pending = form(json!({
        "type": "object", "required": ["name"],
        "properties": {
            "name": {"type": "string", "title": "Your name", "description": "As on the passport", "default": "Ada"},
            "age": {"type": "integer"},
        },
    }))
    .await;
    let question = pending.question("q").unwrap();
    assert_eq!((question.kind(), question.message()), (QuestionKind::Form, "Well?"));
    let name = question.field("name").unwrap();
    assert_eq!((name.label.as_str(), name.required), ("Your name", true));
    assert_eq!(name.description.as_deref(), Some("As on the passport"));
    assert_eq!(name.default, Some(json!("Ada")));
    let age = question.field("age").unwrap();
    assert_eq!((age.label.as_str(), age.required, &age.default, &age.description), ("age", false, &None, &None));
    assert_eq!(question.prefilled(), object!({"name": "Ada"}));
}

#[tokio::test]
async fn texts_and_numbers_have_bounds_and_formats() {
    let text = field(json!({"type": "string", "minLength": 2, "maxLength": 5})).await;
    assert_eq!(text.kind, FieldKind::Text { min_length: Some(2), max_length: Some(5), format: None });
    for (name, format) in [
        ("email", TextFormat::Email),
        ("uri", TextFormat::Uri),
        ("date", TextFormat::Date),
        ("date-time", TextFormat::DateTime),
        ("hostname", TextFormat::Other("hostname".to_owned())),
    ] {
        let field = field(json!({"type": "string", "format": name})).await;
        assert_eq!(field.kind, FieldKind::Text { min_length: None, max_length: None, format: Some(format) });
    }
    let number = field(json!({"type": "number", "minimum": -0.5})).await;
    assert_eq!(number.kind, FieldKind::Number { minimum: Some(-0.5), maximum: None });
    let integer = field(json!({"type": "integer", "minimum": 1, "maximum": 9})).await;
    assert_eq!(integer.kind, FieldKind::Integer { minimum: Some(1.0), maximum: Some(9.0) });
    assert_eq!(field(json!({"type": "boolean", "default": true})).await.kind, FieldKind::Boolean);
}

#[tokio::test]
async fn choices_have_titles_in_every_way_there_is_to_write_them() {
    let plain = [("a", "a"), ("b", "b")];
    let titled = [("a", "First"), ("b", "Second")];
    let options = json!([{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]);
    for (schema, expected) in [
        (json!({"type": "string", "enum": ["a", "b"]}), plain),
        (json!({"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]}), titled),
        (json!({"type": "string", "oneOf": options}), titled),
        (json!({"type": "string", "anyOf": options, "format": "odd"}), titled),
    ] {
        let FieldKind::Choice { choices } = field(schema.clone()).await.kind else { panic!("{schema}") };
        assert_eq!(titles(&choices), expected, "{schema}");
    }
    for (items, expected) in [
        (json!({"type": "string", "enum": ["a", "b"]}), plain),
        (json!({"anyOf": options}), titled),
        (json!({"type": "string", "oneOf": options}), titled),
    ] {
        let kind = field(json!({"type": "array", "items": items, "minItems": 1, "maxItems": 2})).await.kind;
        let FieldKind::Choices { choices, min: Some(1), max: Some(2) } = kind else { panic!("{items}: {kind:?}") };
        assert_eq!(titles(&choices), expected, "{items}");
    }
}

#[tokio::test]
async fn what_is_not_known_keeps_its_schema_and_takes_any_json() {
    for schema in [
        json!({"type": "object", "properties": {"deep": {"type": "string"}}}),
        json!({"type": ["string", "null"]}),
        json!({"type": "array", "items": {"type": "object"}}),
        json!({"$ref": "#/nowhere"}),
        json!({}),
    ] {
        let field = field(schema.clone()).await;
        assert_eq!(field.kind, FieldKind::Unknown { schema: schema.clone() });
        assert_eq!(field.schema(), &schema);
    }
    let mut pending =
        form(json!({"type": "object", "properties": {"o": {"type": "object"}}, "required": ["ghost"]})).await;
    assert!(matches!(pending.accept("q", object!({"o": {}})), Err(AnswerError::Invalid { .. })), "ghost is required");
    pending.accept("q", object!({"o": {"a": 1}, "ghost": [1]})).unwrap();
    assert_eq!(pending.answered("q"), Some(&UserAnswer::Form(object!({"o": {"a": 1}, "ghost": [1]}))));
}

#[tokio::test]
async fn fields_come_in_the_order_in_which_the_server_wrote_them() {
    // As text, because a JSON map would sort them here.
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
        let (reader, mut writer) = tokio::io::split(theirs);
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let result = if message["method"] == "server/discover" {
                r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}"#
            } else {
                r#"{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{"zebra":{"type":"string"},"ant":{"type":"string"},"mule":{"type":"string"}}}}}}}"#
            };
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\n", message["id"]);
            writer.write_all(line.as_bytes()).await.unwrap();
        }
    });
    let client = rounds::client::Host::new(crate::silent()).connect(ours).await.unwrap();
    let pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    let saved = Pending::from_json(&pending.to_json()).unwrap();
    for pending in [pending, saved] {
        let names: Vec<&str> = pending.fields().map(|(_, field)| field.name.as_str()).collect();
        assert_eq!(names, ["zebra", "ant", "mule"]);
    }
}

#[tokio::test]
async fn a_wrong_answer_says_which_field_and_why_and_changes_nothing() {
    let mut pending = form(json!({
        "type": "object", "required": ["seat", "bags"],
        "properties": {
            "seat": {"type": "string", "enum": ["window", "aisle"]},
            "bags": {"type": "integer", "minimum": 0, "maximum": 3},
            "mail": {"type": "string", "format": "email"},
            "meals": {"type": "array", "items": {"type": "string", "enum": ["soup", "fish"]}, "maxItems": 1},
        },
    }))
    .await;
    pending.accept("q", object!({"seat": "aisle", "bags": 1.0, "unasked": true})).unwrap();
    let right = UserAnswer::Form(object!({"seat": "aisle", "bags": 1}));
    assert_eq!(pending.answered("q"), Some(&right), "complete, and without fields that were not asked for");
    for (content, field, why) in [
        (object!({"bags": 1}), "seat", "`seat` is missing"),
        (object!({"seat": "roof", "bags": 1}), "seat", "`seat` must be one of window, aisle"),
        (object!({"seat": "aisle", "bags": 4}), "bags", "`bags` must be at most 3"),
        (object!({"seat": "aisle", "bags": 0.5}), "bags", "`bags` must be a whole number"),
        (object!({"seat": "aisle", "bags": 1, "mail": "ada"}), "mail", "`mail` must be an e-mail address"),
        (object!({"seat": "aisle", "bags": 1, "meals": ["soup", "fish"]}), "meals", "at most 1"),
        (object!({"seat": "aisle", "bags": 1, "meals": ["hay"]}), "meals", "must be one of soup, fish"),
    ] {
        let error = pending.accept("q", content).unwrap_err();
        let AnswerError::Invalid { key, problem } = &error else { panic!("{error:?}") };
        assert_eq!((key.as_str(), problem.field()), ("q", Some(field)));
        assert!(problem.to_string().contains(why), "{problem}");
        assert_eq!(pending.answered("q"), Some(&right), "earlier answers are kept");
    }
}

#[tokio::test]
async fn what_somebody_typed_is_read_as_what_the_field_takes() {
    let yes = |value: Value| Ok::<_, InvalidAnswer>(value);
    let text = field(json!({"type": "string", "maxLength": 4})).await;
    assert_eq!(text.parse("42"), yes(json!("42")));
    assert!(text.parse("too long").is_err());
    let number = field(json!({"type": "number", "maximum": 10})).await;
    assert_eq!((number.parse(" 2.5 "), number.parse("3")), (yes(json!(2.5)), yes(json!(3))));
    assert!(number.parse("NaN").is_err() && number.parse("inf").is_err() && number.parse("11").is_err());
    let integer = field(json!({"type": "integer"})).await;
    assert_eq!((integer.parse("3.0"), integer.parse("-7")), (yes(json!(3)), yes(json!(-7))));
    assert_eq!(integer.parse("three").unwrap_err().to_string(), "`f` must be a whole number");
    let boolean = field(json!({"type": "boolean"})).await;
    assert_eq!((boolean.parse("Yes"), boolean.parse("n")), (yes(json!(true)), yes(json!(false))));
    assert!(boolean.parse("maybe").is_err());
    let options = json!([{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]);
    let choice = field(json!({"type": "string", "oneOf": options})).await;
    assert_eq!((choice.parse("a"), choice.parse("second")), (yes(json!("a")), yes(json!("b"))));
    assert!(choice.parse("third").is_err());
    let choices = field(json!({"type": "array", "items": {"anyOf": options}})).await;
    assert_eq!((choices.parse("First, b"), choices.parse("")), (yes(json!(["a", "b"])), yes(json!([]))));
    let commas = field(json!({"type": "array", "items": {"type": "string", "enum": ["a, b", "a", ""]}})).await;
    assert_eq!(
        (commas.parse("A, B"), commas.parse("a"), commas.parse("")),
        (yes(json!(["a, b"])), yes(json!(["a"])), yes(json!([])))
    );
    assert_eq!(commas.choice(" A, b ").map(|choice| choice.value.as_str()), Some("a, b"));
    assert_eq!((commas.choice("c"), boolean.choice("yes")), (None, None));
    let unknown = field(json!({})).await;
    assert_eq!(unknown.parse("{\"a\": [1]}"), yes(json!({"a": [1]})));
    assert!(unknown.parse("{").is_err());
}

#[tokio::test]
async fn a_default_that_does_not_fit_is_none() {
    let field = field(json!({"type": "object", "default": {}, "enum": [1]})).await;
    assert_eq!(field.default, None);
}
