"""Tags for templates: `{% load onefold %}`."""
