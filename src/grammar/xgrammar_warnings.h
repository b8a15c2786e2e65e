// Included before every source of xgrammar that compiles grammars (cmake/Xgrammar.cmake). It warns
// where it leaves a part of a structure out; here that is an error. What is thrown comes from a
// destructor that may throw: that of a warning may not, and an allocation in it could end the
// process where memory is limited (structure_worker.h).
#pragma once

#include <support/logging.h>

#undef XGRAMMAR_LOG_WARNING
#define XGRAMMAR_LOG_WARNING LogFatal(__FILE__, __LINE__).stream() << "it cannot be enforced: "
