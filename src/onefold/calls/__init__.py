"""The calls people make: one line a method over operations, sync and async side by side. Internal.

The classes are public through `onefold`; these modules are where they are written.
"""
