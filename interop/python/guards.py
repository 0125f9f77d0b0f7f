"""The tools of the servers that are written with an SDK of the modern era: each returns its questions, and runs again with the
answers. What has to come of them is in `servers.json`."""

import json

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, InputRequiredResult


def form(message, name, schema):
    requested = {"type": "object", "properties": {name: schema}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=requested))


def given(context, key):
    """What was answered under a key in the last round, if anything was."""
    return (context.input_responses or {}).get(key)


def ask(state, **questions):
    return InputRequiredResult(input_requests=questions or None, request_state=json.dumps(state))


def guards(tool, Context):
    """Registers them with the decorator and the context of an SDK."""

    @tool
    async def weather(location: str, context: Context) -> str | InputRequiredResult:
        """The weather, in units that are asked for"""
        units = given(context, "units")
        if units is None:
            return ask({}, units=form("Which units?", "units", {"type": "string", "enum": ["metric", "imperial"]}))
        if units.action != "accept":
            return f"Cancelled ({units.action})."
        temperature = "22°C" if units.content["units"] == "metric" else "72°F"
        return f"Weather in {location}: {temperature}, partly cloudy."

    @tool
    async def book(to: str, context: Context) -> str | InputRequiredResult:
        """Books a seat, in two rounds"""
        state = json.loads(context.request_state or "{}")
        seat, confirm = given(context, "seat"), given(context, "confirm")
        if seat is None and "seat" not in state:
            return ask({}, seat=form(f"Which seat to {to}?", "seat", {"type": "string"}))
        if confirm is None:
            if seat.action != "accept":
                return "Not booked."
            chosen = seat.content["seat"]
            question = form(f"Book seat {chosen} to {to}?", "confirm", {"type": "boolean"})
            return ask({"seat": chosen}, confirm=question)
        booked = confirm.action == "accept" and confirm.content["confirm"]
        return f"Booked seat {state['seat']} to {to}." if booked else "Not booked."

    @tool
    async def introduce(context: Context) -> str | InputRequiredResult:
        """Asks for two things in one round"""
        name, colour = given(context, "name"), given(context, "colour")
        if name is None or colour is None:
            return ask(
                {},
                name=form("What is your name?", "name", {"type": "string"}),
                colour=form("Which colour do you like?", "colour", {"type": "string"}),
            )
        return f"{(name.content or {}).get('name', 'Nobody')} likes {(colour.content or {}).get('colour', 'nothing')}."

    @tool
    async def sign_in(context: Context) -> str | InputRequiredResult:
        """Asks to visit a page"""
        page = given(context, "page")
        if page is None:
            params = ElicitRequestURLParams(message="Please sign in", url="https://example.com/sign-in", elicitation_id="1")
            return ask({}, page=ElicitRequest(params=params))
        return "Agreed to sign in." if page.action == "accept" else "Did not agree."

    @tool
    async def come_back(context: Context) -> str | InputRequiredResult:
        """Asks nothing, and wants to be called again"""
        return "Came back." if context.request_state else ask({"seen": True})
