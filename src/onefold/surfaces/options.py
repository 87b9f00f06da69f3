"""What routes are told with: the values of their options, for every framework."""

from onefold.model.doubt import Done, NotDone
from onefold.surfaces.http.answer import Answer, Kept
from onefold.surfaces.http.fingerprint import Fields
from onefold.surfaces.http.key import KeyRules
from onefold.surfaces.http.policy import PolicyOptions
from onefold.surfaces.http.request import Request
from onefold.surfaces.http.sealing import Sealing

__all__ = [
    "Answer",
    "Done",
    "Fields",
    "Kept",
    "KeyRules",
    "NotDone",
    "PolicyOptions",
    "Request",
    "Sealing",
]
