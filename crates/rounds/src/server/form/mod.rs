//! Forms: from a Rust type to the flat schema that a client can show, and from its answer back to the type.

mod declared;
mod plain;
mod schema;

use std::{
    any::TypeId,
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use rmcp::{
    model::{ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, PrimitiveSchemaDefinition},
    schemars::JsonSchema,
};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use self::plain::{Misfit, Plain};
pub use self::schema::{Alternative, Schema};
use crate::{
    server::seal::{
        Digest,
        digest::{Fingerprint, of_form},
    },
    shared::check::{Fields, InvalidAnswer, Rule, object},
};

/// A type that can be asked for with a form.
///
/// A struct of plain fields becomes a form with its fields. An enum, a boolean, a number or a string becomes a form
/// with one field, named after the question's key. An option of one of the latter becomes an optional field: it is
/// `None` if the answer has no value or an empty text.
///
/// Fields are shown in the order in which the struct declares them: see [`order`](crate::order).
///
/// Fields may be strings, numbers, booleans, enums without data, lists of such enums, and options of any of these. A
/// string may have a format: `email`, `uri`, `date` and `date-time` are shown to the client and checked; `uuid`, `ip`,
/// `ipv4` and `ipv6`, which the protocol does not have, are asked for as plain strings, and checked. So is a `pattern`,
/// which is added to the description of its field.
///
/// There is nothing to implement: every type that derives `Deserialize` and `JsonSchema` has it. If no form can express
/// the type, such as a struct within a struct, a map, or a string of another format, the question fails with a
/// [`FormTypeError`] when it is first asked.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be asked for with a form",
    note = "write `use rmcp::schemars;` and derive `serde::Deserialize` and `schemars::JsonSchema` for it (it cannot borrow). If it is `!`, \
            say what to ask for: `let units: Units = ask.form(\"Which units?\").await?;`"
)]
pub trait FormType: DeserializeOwned + JsonSchema + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> FormType for T {}

/// Why a type or a [`Schema`] cannot be asked for with a form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be asked for with a form: {misfit}")]
pub struct FormTypeError {
    what: FormSubject,
    misfit: Misfit,
}

impl FormTypeError {
    /// The field that is wrong, if it is one field.
    pub fn field(&self) -> Option<&str> {
        self.misfit.field.as_deref()
    }

    /// The name of the type. None for a schema that was made at run time.
    pub fn type_name(&self) -> Option<&'static str> {
        match self.what {
            FormSubject::Type(name) => Some(name),
            FormSubject::Schema => None,
        }
    }
}

/// What a form should have been made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormSubject {
    Type(&'static str),
    Schema,
}

impl fmt::Display for FormSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(name) => write!(f, "`{name}`"),
            Self::Schema => f.write_str("this schema"),
        }
    }
}

/// The origin of a question's form: a type, or a schema that was made at run time.
#[derive(Clone)]
pub(crate) enum FormSource {
    Type(fn() -> Result<&'static Shape, FormTypeError>),
    Made(Arc<Result<Shape, FormTypeError>>),
}

impl FormSource {
    pub(crate) const fn of<T: FormType>() -> Self {
        Self::Type(Shape::of_type::<T>)
    }

    /// The form under this key.
    pub(crate) fn form<'a>(&'a self, key: &'a str) -> Result<Form<'a>, FormTypeError> {
        let shape = match self {
            Self::Type(shape) => shape()?,
            Self::Made(made) => made.as_ref().as_ref().map_err(Clone::clone)?,
        };
        Ok(Form { shape, key })
    }

    /// Whether it was made at run time, so that its type does not determine it.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self, Self::Made(_))
    }

    /// Its memory in bytes, about, if it is not shared by all questions of a type.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Type(_) => 0,
            Self::Made(made) => made.as_ref().as_ref().map_or(0, |shape| shape.bytes),
        }
    }
}

/// The form of one question.
pub(crate) struct Form<'a> {
    shape: &'a Shape,
    key: &'a str,
}

/// The form of a type or of a schema, whatever the key it is asked under. That of a type is made once, and kept for the
/// life of the process.
pub(crate) struct Shape {
    fields: FormFields,
    digest: Digest,
    /// The largest number of options that a field has.
    options: usize,
    /// Its memory, about.
    bytes: usize,
}

/// The fields of a form: the rules that check answers, and the schema that is sent.
enum FormFields {
    /// The properties of an object.
    Of(Fields, ElicitationSchema),
    /// The only field of a form, for any other type.
    Single(Rule, PrimitiveSchemaDefinition),
}

type KnownShapes = BTreeMap<TypeId, Result<&'static Shape, FormTypeError>>;

static SHAPES: RwLock<KnownShapes> = RwLock::new(KnownShapes::new());

impl Form<'_> {
    /// The form that asks for a `T` under this key.
    #[cfg(test)]
    pub(crate) fn of<T: FormType>(key: &str) -> Result<Form<'_>, FormTypeError> {
        Ok(Form { shape: Shape::of_type::<T>()?, key })
    }

    /// The default key of a question for a `T`: the type's name, `Units` as `units`, and `answer` for a plain type.
    pub(crate) fn default_key<T: FormType>() -> String {
        let name = T::schema_name();
        let name = without_option(&name);
        // The schema names of Rust's own types are lower-case: `boolean`, `string`, `uint8`.
        if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
            return "answer".to_owned();
        }
        let mut key = String::with_capacity(name.len() + 4);
        for c in name.chars().filter(|c| c.is_ascii_alphanumeric()) {
            if c.is_ascii_uppercase() && !key.is_empty() {
                key.push('_');
            }
            key.push(c.to_ascii_lowercase());
        }
        key
    }

    /// The schema as it goes over the wire.
    pub(crate) fn schema(&self) -> ElicitationSchema {
        match &self.shape.fields {
            FormFields::Of(_, schema) => schema.clone(),
            FormFields::Single(field, definition) => {
                let mut properties = BTreeMap::new();
                properties.insert(self.key.to_owned(), definition.clone());
                let mut schema = ElicitationSchema::new(properties);
                schema.required = (!field.is_optional()).then(|| vec![self.key.to_owned()]);
                schema
            }
        }
    }

    /// The largest number of options that one of its fields has.
    pub(crate) fn options(&self) -> usize {
        self.shape.options
    }

    /// The question with this message.
    pub(crate) fn request(&self, message: String) -> InputRequest {
        InputRequest::Elicitation(ElicitRequest::new(self.params(message)))
    }

    /// The parameters of the question with this message.
    pub(crate) fn params(&self, message: String) -> ElicitRequestParams {
        ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema: self.schema() }
    }

    /// The fingerprint of the question with this message.
    pub(crate) fn fingerprint(&self, message: &str) -> Fingerprint {
        of_form(message, self.key, &self.shape.digest)
    }

    /// Checks an answer against the schema, then deserialises it.
    pub(crate) fn read<T: DeserializeOwned>(&self, content: &Value) -> Result<T, InvalidAnswer> {
        let value = match &self.shape.fields {
            FormFields::Of(fields, _) => Value::Object(fields.check(content)?),
            FormFields::Single(field, _) => field.check_alone(self.key, object(content)?.get(self.key).cloned())?,
        };
        made_of(value)
    }

    /// Reads an answer that is JSON text, as [`read`](Self::read) does. For a form with one field, only that value is
    /// deserialised.
    pub(crate) fn read_text<T: DeserializeOwned>(&self, json: &str) -> Result<T, InvalidAnswer> {
        match &self.shape.fields {
            FormFields::Of(..) => self.read(&serde_json::from_str(json).map_err(unfit)?),
            FormFields::Single(field, _) => {
                made_of(field.check_alone(self.key, member(json, self.key).map_err(unfit)?)?)
            }
        }
    }
}

/// The name of a type, without the prefix of an option.
fn without_option(name: &str) -> &str {
    name.strip_prefix("Nullable_").unwrap_or(name)
}

fn made_of<T: DeserializeOwned>(value: Value) -> Result<T, InvalidAnswer> {
    serde_json::from_value(value).map_err(unfit)
}

fn unfit(error: serde_json::Error) -> InvalidAnswer {
    InvalidAnswer::whole(format!("the answer cannot be read: {error}"))
}

/// The member of this name of an object that is JSON text. Other members are skipped.
fn member(json: &str, name: &str) -> serde_json::Result<Option<Value>> {
    let mut text = serde_json::Deserializer::from_str(json);
    let found = text.deserialize_map(MemberVisitor(name))?;
    text.end()?;
    Ok(found)
}

struct MemberVisitor<'a>(&'a str);

impl<'de> Visitor<'de> for MemberVisitor<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Option<Value>, A::Error> {
        let mut found = None;
        while let Some(is_it) = members.next_key_seed(MemberName(self.0))? {
            if is_it {
                found = Some(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Whether a member has this name.
struct MemberName<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for MemberName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<bool, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for MemberName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

impl Shape {
    /// The form of a type.
    fn of_type<T: FormType>() -> Result<&'static Self, FormTypeError> {
        let known = SHAPES.read().unwrap_or_else(PoisonError::into_inner).get(&TypeId::of::<T>()).cloned();
        known.unwrap_or_else(Self::make::<T>)
    }

    #[cold]
    fn make<T: FormType>() -> Result<&'static Self, FormTypeError> {
        let what = FormSubject::Type(std::any::type_name::<T>());
        let shape = Plain::of::<T>().and_then(Self::of).map_err(|misfit| FormTypeError { what, misfit });
        let mut shapes = SHAPES.write().unwrap_or_else(PoisonError::into_inner);
        shapes.entry(TypeId::of::<T>()).or_insert_with(|| shape.map(|shape| &*Box::leak(Box::new(shape)))).clone()
    }

    /// The form that has exactly the fields of this schema.
    fn of(plain: Plain) -> Result<Self, Misfit> {
        let options = plain.options();
        let (fields, json) = match plain {
            Plain::Single { field, is_nullable } => {
                let mut shown = field.clone();
                if let Some(Value::String(title)) = shown.get_mut("title") {
                    *title = without_option(title).to_owned();
                }
                let definition = plain::carried(&shown).map_err(|why| Misfit::whole(format!("it {why}")))?;
                let rule = Rule::of(&shown).matching(&shown).map_err(|why| Misfit::whole(format!("it {why}")))?;
                let rule = if is_nullable { rule.or_null() } else { rule };
                (FormFields::Single(rule, definition), field)
            }
            Plain::Object { schema, order } => {
                let mut asked = plain::expressible(&schema)?;
                asked.property_order = Some(order);
                let fields = Fields::of(&schema).matching(&schema).map_err(|(name, why)| Misfit::of(&name, why))?;
                (FormFields::Of(fields, asked), Value::Object(schema))
            }
        };
        Ok(Self { fields, digest: Digest::of_shape(&json), options, bytes: plain::weight(&json) })
    }
}

#[cfg(test)]
mod tests {
    use rmcp::schemars;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Units {
        Metric,
        Imperial,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    enum Class {
        /// Somewhat more room
        Comfort,
        Economy,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Trip {
        /// Who travels
        name: String,
        class: Class,
        units: Option<Units>,
        #[schemars(range(min = 1, max = 9))]
        seats: u8,
        price: Option<f64>,
        #[serde(default)]
        window: bool,
        #[schemars(length(min = 1))]
        meals: Vec<Units>,
        #[schemars(extend("format" = "date"))]
        day: Option<String>,
    }

    fn schema<T: FormType>(key: &str) -> Value {
        serde_json::to_value(Form::of::<T>(key).unwrap().schema()).unwrap()
    }

    fn read<T: FormType>(key: &str, content: Value) -> Result<T, String> {
        let form = Form::of::<T>(key).unwrap();
        // A recorded answer is read from its text, with the same result.
        let recalled: Result<T, InvalidAnswer> = form.read_text(&content.to_string());
        let read: Result<T, InvalidAnswer> = form.read(&content);
        assert_eq!(read.is_ok(), recalled.is_ok(), "{content}");
        if content.is_object() {
            assert_eq!(read.as_ref().err(), recalled.as_ref().err());
        }
        read.map_err(|problem| problem.to_string())
    }

    fn order<T: FormType>() -> Vec<String> {
        Form::of::<T>("key").unwrap().schema().property_order.unwrap()
    }

    #[test]
    fn fields_are_in_the_order_of_their_declaration() {
        let declared = ["name", "class", "units", "seats", "price", "window", "meals", "day"];
        assert_eq!(order::<Trip>(), declared);

        #[derive(Deserialize, JsonSchema)]
        struct Wrapped(Trip);
        #[derive(Deserialize, JsonSchema)]
        #[serde(transparent)]
        struct Transparent {
            trip: Box<Trip>,
        }
        assert_eq!(order::<Wrapped>(), declared);
        assert_eq!(order::<Transparent>(), declared);
        assert_eq!(order::<Box<Trip>>(), declared);
        let _ = |wrapped: Wrapped, transparent: Transparent| (wrapped.0, transparent.trip);

        #[derive(Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Renamed {
            z_first: String,
            #[serde(rename = "Y", alias = "a_also", alias = "zz")]
            then: String,
            #[serde(skip)]
            never: String,
            #[serde(default)]
            a_last: bool,
        }
        assert_eq!(order::<Renamed>(), ["zFirst", "Y", "aLast"]);
    }

    #[test]
    fn a_struct_with_flattened_parts_has_first_what_is_required_in_order() {
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Address {
            street: String,
            city: String,
            country: Option<String>,
        }
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Guest {
            name: String,
            #[serde(flatten)]
            address: Address,
            age: u8,
            allergies: Option<String>,
        }
        assert_eq!(order::<Guest>(), ["name", "street", "city", "age", "allergies", "country"]);
    }

    #[test]
    fn a_field_with_a_default_that_is_left_empty_has_it() {
        #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
        #[schemars(extend("default" = true))]
        struct Window(bool);

        assert_eq!(schema::<Window>("window")["required"], Value::Null);
        for empty in [json!({}), json!({"window": null})] {
            assert_eq!(read("window", empty), Ok(Window(true)));
        }
        assert_eq!(read("window", json!({"window": false})), Ok(Window(false)));
    }

    #[test]
    fn an_ordinary_enum_is_a_form_of_one_field_named_after_the_key() {
        let expected = json!({
            "type": "object",
            "properties": {"units": {"type": "string", "enum": ["metric", "imperial"], "title": "Units"}},
            "required": ["units"],
        });
        assert_eq!(schema::<Units>("units"), expected);
        assert_eq!(read("units", json!({"units": "metric"})), Ok(Units::Metric));
        assert_eq!(
            read::<Units>("units", json!({"units": "kelvin"})),
            Err("`units` must be one of metric, imperial".to_owned())
        );
    }

    #[test]
    fn a_question_is_named_after_its_type() {
        assert_eq!(Form::default_key::<Units>(), "units");
        assert_eq!(Form::default_key::<bool>(), "answer");
        assert_eq!(Form::default_key::<u8>(), "answer");
        assert_eq!(Form::default_key::<String>(), "answer");
        #[derive(Deserialize, JsonSchema)]
        struct SeatOnPlane {}
        assert_eq!(Form::default_key::<SeatOnPlane>(), "seat_on_plane");
    }

    #[test]
    fn the_text_of_an_answer_is_read_as_the_answer_is() {
        let read =
            |json: &str| Form::of::<u8>("n").unwrap().read_text::<u8>(json).map_err(|problem| problem.to_string());
        assert_eq!(read(r#"{"n":3}"#), Ok(3));
        assert_eq!(read(r#"{"other":{"n":[1]},"\u006e":3.0,"n2":4}"#), Ok(3), "whatever is beside it");
        assert_eq!(read(r#"{"n":1,"n":3}"#), Ok(3), "the last one counts, as in a map");
        assert_eq!(read(r#"{"n":null}"#), Err("`n` is missing".to_owned()));
        assert_eq!(read("{}"), Err("`n` is missing".to_owned()));
        for broken in ["", "[3]", r#"{"n":3"#, r#"{"n":3} 4"#] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn plain_types_are_forms_of_one_field_too() {
        assert_eq!(schema::<bool>("ok")["properties"], json!({"ok": {"type": "boolean"}}));
        assert_eq!(read("ok", json!({"ok": true})), Ok(true));
        assert_eq!(read::<bool>("ok", json!({"ok": "yes"})), Err("`ok` must be of type boolean".to_owned()));
        assert_eq!(read("n", json!({"n": 3})), Ok(3u8));
        assert_eq!(read("name", json!({"name": "Ada"})), Ok("Ada".to_owned()));
    }

    #[test]
    fn a_struct_of_every_kind_of_field_survives_the_way_there_and_back() {
        let sent = schema::<Trip>("trip");
        assert!(sent.get("$schema").is_none() && sent.get("title").is_none(), "{sent}");
        let fields = &sent["properties"];
        assert_eq!(
            fields["class"]["oneOf"],
            json!([{"const": "Economy", "title": "Economy"}, {"const": "Comfort", "title": "Somewhat more room"}])
        );
        assert_eq!(fields["units"]["enum"], json!(["metric", "imperial"]));
        assert_eq!(fields["seats"]["minimum"], json!(1));
        assert_eq!(fields["window"]["default"], json!(false));
        assert_eq!(fields["meals"]["items"], json!({"type": "string", "enum": ["metric", "imperial"]}));
        assert_eq!(fields["day"]["format"], json!("date"));
        let required = sent["required"].as_array().unwrap();
        assert!(!required.contains(&json!("units")) && required.contains(&json!("name")), "{sent}");

        let answer = json!({
            "name": "Ada", "class": "Economy", "seats": 2.0, "window": true, "meals": ["metric"], "day": "2028-02-29",
        });
        let trip: Trip = read("trip", answer).unwrap();
        assert_eq!((trip.seats, trip.class, trip.units, trip.window), (2, Class::Economy, None, true));
    }

    #[test]
    fn a_wrong_answer_says_which_field_and_why() {
        let good = json!({"name": "Ada", "class": "Economy", "seats": 2, "meals": ["metric"]});
        let wrong = |field: &str, value: Value| {
            let mut answer = good.clone();
            answer[field] = value;
            read::<Trip>("trip", answer).unwrap_err()
        };
        assert!(read::<Trip>("trip", good.clone()).is_ok());
        assert_eq!(wrong("name", json!(7)), "`name` must be of type string");
        assert_eq!(wrong("name", Value::Null), "`name` is missing");
        assert_eq!(wrong("class", json!("First")), "`class` must be one of Economy, Comfort");
        assert_eq!(wrong("seats", json!(0)), "`seats` must be at least 1");
        assert_eq!(wrong("seats", json!(10)), "`seats` must be at most 9");
        assert_eq!(wrong("seats", json!(2.5)), "`seats` must be a whole number");
        assert_eq!(wrong("seats", json!("2")), "`seats` must be a whole number");
        assert_eq!(wrong("meals", json!([])), "`meals` must have a number of choices of at least 1");
        assert_eq!(wrong("meals", json!(["metric", "kelvin"])), "`meals` must be one of metric, imperial");
        assert_eq!(wrong("day", json!("2027-02-29")), "`day` must be a date such as 2026-07-28");
        assert_eq!(read::<Trip>("trip", json!([])).unwrap_err(), "the answer is not an object");
    }

    #[test]
    fn an_option_is_a_form_of_one_optional_field() {
        let expected = json!({"type": "object", "properties": {"note": {"type": "string"}}});
        assert_eq!(schema::<Option<String>>("note"), expected);
        for nothing in [json!({}), json!({"note": null}), json!({"note": ""})] {
            assert_eq!(read("note", nothing), Ok(None::<String>));
        }
        assert_eq!(read("note", json!({"note": "by the door"})), Ok(Some("by the door".to_owned())));
        assert_eq!(read::<Option<String>>("note", json!({"note": 1})), Err("`note` must be of type string".to_owned()));

        let units = json!({"units": {"type": "string", "enum": ["metric", "imperial"], "title": "Units"}});
        assert_eq!(schema::<Option<Units>>("units"), json!({"type": "object", "properties": units}));
        assert_eq!(read("units", json!({"units": ""})), Ok(None::<Units>));
        assert_eq!(read("units", json!({"units": "metric"})), Ok(Some(Units::Metric)));
        assert!(read::<Option<Units>>("units", json!({"units": "kelvin"})).is_err());

        assert_eq!(read("n", json!({})), Ok(None::<u8>));
        assert_eq!(read("n", json!({"n": 3.0})), Ok(Some(3u8)));
        assert!(read::<Option<u8>>("n", json!({"n": ""})).is_err(), "an empty text is not a number");
        assert_eq!(read("yes", json!({})), Ok(None::<bool>));

        #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
        struct Note(Option<String>);
        assert_eq!(read("note", json!({})), Ok(Note(None)));
        assert_eq!(Form::default_key::<Option<Units>>(), "units");
        assert_eq!(Form::default_key::<Option<String>>(), "answer");
    }

    /// An answer that was asked for before the field became optional still counts.
    #[test]
    fn an_option_has_the_fingerprint_of_what_it_may_have() {
        let of = |form: Result<Form<'_>, FormTypeError>| form.unwrap().fingerprint("Well?");
        assert_eq!(of(Form::of::<Option<String>>("note")), of(Form::of::<String>("note")));
    }

    #[test]
    fn a_format_that_the_protocol_does_not_have_is_asked_for_as_text_and_checked() {
        #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
        struct Ticket {
            #[schemars(extend("format" = "uuid"))]
            id: String,
            from: Option<std::net::Ipv4Addr>,
        }
        let sent = schema::<Ticket>("ticket");
        assert_eq!(sent["properties"], json!({"id": {"type": "string"}, "from": {"type": "string"}}));
        let id = "123e4567-e89b-12d3-a456-426614174000";
        assert!(read::<Ticket>("ticket", json!({"id": id, "from": "192.0.2.1"})).is_ok());
        assert_eq!(
            read::<Ticket>("ticket", json!({"id": "17"})),
            Err("`id` must be a UUID such as 123e4567-e89b-12d3-a456-426614174000".to_owned())
        );
        assert_eq!(
            read::<Ticket>("ticket", json!({"id": id, "from": "here"})),
            Err("`from` must be an IPv4 address such as 192.0.2.1".to_owned())
        );
        assert_eq!(schema::<std::net::IpAddr>("ip")["properties"], json!({"ip": {"type": "string"}}));
    }

    #[test]
    fn a_pattern_is_shown_as_a_rule_and_checked() {
        #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
        struct Flight {
            /// The number of the flight
            #[schemars(regex(pattern = "^[A-Z]{2}[0-9]+$"))]
            number: String,
            #[schemars(regex(pattern = "^[0-9]+[A-F]$"))]
            seat: Option<String>,
        }
        let sent = schema::<Flight>("flight");
        let number = json!({"type": "string", "description": "The number of the flight (must match ^[A-Z]{2}[0-9]+$)"});
        let seat = json!({"type": "string", "description": "must match ^[0-9]+[A-F]$"});
        assert_eq!(sent["properties"], json!({"number": number, "seat": seat}));
        assert!(read::<Flight>("flight", json!({"number": "LX14", "seat": "12A"})).is_ok());
        assert_eq!(
            read::<Flight>("flight", json!({"number": "14"})),
            Err("`number` must match ^[A-Z]{2}[0-9]+$".to_owned())
        );
        assert_eq!(
            read::<Flight>("flight", json!({"number": "LX14", "seat": "A"})),
            Err("`seat` must match ^[0-9]+[A-F]$".to_owned())
        );

        #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
        struct Code(#[schemars(regex(pattern = "^a+$"))] String);
        assert_eq!(schema::<Code>("code")["properties"]["code"]["description"], "must match ^a+$");
        assert_eq!(read("code", json!({"code": "aa"})), Ok(Code("aa".to_owned())));
        assert_eq!(read::<Code>("code", json!({"code": "ab"})), Err("`code` must match ^a+$".to_owned()));
    }

    fn unaskable<T: FormType>() -> String {
        Form::of::<T>("key").err().unwrap_or_else(|| panic!("it can be asked")).to_string()
    }

    #[test]
    fn maps_are_rejected_by_name() {
        use std::collections::{BTreeMap, HashMap};

        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Labelled {
            name: String,
            labels: HashMap<String, String>,
        }
        let said = unaskable::<Labelled>();
        assert!(said.contains("Labelled` cannot be asked for with a form: `labels` is a map"), "{said}");
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Sometimes {
            labels: Option<BTreeMap<String, u8>>,
        }
        let said = unaskable::<Sometimes>();
        assert!(said.contains("Sometimes` cannot be asked for with a form: `labels` is a map"), "{said}");
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Flattening {
            name: String,
            #[serde(flatten)]
            more: HashMap<String, String>,
        }
        for said in
            [unaskable::<Flattening>(), unaskable::<HashMap<String, String>>(), unaskable::<BTreeMap<String, bool>>()]
        {
            assert!(said.contains("` cannot be asked for with a form: it is a map or has one"), "{said}");
        }
        for said in [unaskable::<Option<HashMap<String, String>>>(), unaskable::<Option<Trip>>()] {
            assert!(said.contains("a form: it is a"), "{said}");
        }
    }

    #[test]
    fn a_type_that_no_form_can_express_says_so() {
        #[derive(Debug, Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Nested {
            trip: Trip,
        }
        #[derive(Debug, Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Patterned {
            #[schemars(extend("pattern" = "^(?=a)"))]
            code: String,
        }
        #[derive(Debug, Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Formatted {
            #[schemars(extend("format" = "iban"))]
            account: String,
        }
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(tag = "kind")]
        #[expect(dead_code, reason = "only its schema is looked at")]
        enum Tagged {
            One { a: String },
            Two { b: String },
        }
        #[derive(Debug, Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Flattened {
            name: String,
            #[serde(flatten)]
            tagged: Tagged,
        }
        let nested = unaskable::<Nested>();
        assert!(nested.contains("Nested` cannot be asked for with a form: `trip` is a struct"), "{nested}");
        assert!(nested.ends_with("add `#[serde(flatten)]` to it, or ask for it in a question of its own"), "{nested}");
        // What a question without a type asks for, before edition 2024.
        let nothing = unaskable::<()>();
        assert!(nothing.contains("`()` cannot be asked for with a form: it has no value: say what"), "{nothing}");
        let patterned = unaskable::<Patterned>();
        assert!(patterned.contains("`code` has a `pattern` that cannot be checked: look-around"), "{patterned}");
        let formatted = unaskable::<Formatted>();
        assert!(formatted.contains("`account` has the format `iban`, which is not supported (those"), "{formatted}");
        let listed = unaskable::<Vec<String>>();
        assert!(listed.contains(": it is not a string, a number,"), "{listed}");
        assert!(unaskable::<Tagged>().contains("a form: it "), "{}", unaskable::<Tagged>());
        let flattened = unaskable::<Flattened>();
        assert!(flattened.ends_with("it uses `oneOf`, which a form cannot express"), "{flattened}");
    }
}
