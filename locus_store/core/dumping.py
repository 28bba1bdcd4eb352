"""States as documents: any pydantic model, and back.

A state's document has the model's field names as keys and plain values: nested models become dicts, enums their values,
types that pydantic knows (paths, URLs, addresses, dataclasses) their JSON form. Lists and tuples of models become
`StateList`, so that messages which were saved before are not turned into data again.

Such conversions are undone by the model's own validation, where the field says what it expects. Where it does not (an
enum in a field of type ``Any``) the value would silently come back as something else. So the first time that a kind of
conversion is met in a place, what was made of it is read back and compared, and refused if it differs; where the
field's type does not say alone what comes back, that is done for each value.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from locus_store.core.codec import encode
from locus_store.core.comparing import compare, read_back, refused
from locus_store.core.errors import SerializationError
from locus_store.core.fields import fields_of
from locus_store.core.walking import Walk

State = TypeVar("State", bound=BaseModel)

_STATE = "state"


class Dumper(Generic[State]):
    """Turns states of one type into documents and back.

    Args:
        state_type: The pydantic model.
    """

    def __init__(self, state_type: type[State]) -> None:
        if not (isinstance(state_type, type) and issubclass(state_type, BaseModel)):
            raise TypeError(f"a state type must be a pydantic model, got {state_type!r}")
        if issubclass(state_type, RootModel):
            raise TypeError(f"{state_type.__name__} is a RootModel; a state must have fields")
        self.state_type = state_type

    def document(self, state: BaseModel) -> dict[Any, Any]:
        """The state's document.

        Args:
            state: The state, of any pydantic model; `state` reads it as the dumper's type.

        Raises:
            SerializationError: A value would not come back as what it is.
        """
        try:
            walk = Walk()
            document = walk.model(state, (), lists=True)
            walk.met(fields_of(type(state)), (_STATE,))
            if walk.unseen:
                self._check(state, walk)
        except RecursionError as e:
            raise SerializationError("$", "nested too deeply for the stack that is left, or contains itself") from e
        if type(document) is not dict:
            raise SerializationError("$", f"{type(state).__name__} has a serializer that does not give a dict")
        return document

    def state(self, document: dict[Any, Any]) -> State:
        """The state again; raises pydantic's ``ValidationError`` if the document does not fit the type."""
        return read_back(self.state_type, document)

    def _check(self, state: BaseModel, walk: Walk) -> None:
        """Read the whole document back, as the type that the state has: that shows that the document says all."""
        whole = Walk()
        plain = whole.model(state, (), lists=False)
        encode(plain)  # what cannot be stored at all is named first
        try:
            back = read_back(type(state), plain)
        except ValidationError as e:
            raise refused(e, ()) from e
        compare(state, back, ())
        walk.trust()
        whole.trust()
