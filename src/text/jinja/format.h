// Python's "%" formatting and str.format, the parts that templates use.
#pragma once

#include "text/jinja/runtime.h"

namespace nibble::jinja {

/// format % arguments: %s %r %d %i %f %e %g %x %X %o %c %%, flags, width, precision; a tuple gives
/// several values, a dict named ones (%(name)s).
Result<Text> format_percent(Runtime& runtime, const Text& format, const Value& arguments);

/// "{} {0} {name} {0.attribute} {0[key]}".format(...); format specs are refused.
Result<Text> format_braces(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace nibble::jinja
