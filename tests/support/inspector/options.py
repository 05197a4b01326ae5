"""Print all options of ironic-inspector as JSON, by section. Run by the interpreter of ``.inspector-venv``."""

import json

from ironic_inspector.conf import opts

print(json.dumps({section: [option.dest for option in options] for section, options in opts.list_opts()}))
