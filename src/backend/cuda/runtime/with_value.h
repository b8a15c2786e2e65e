// From a number that is known when the program runs to a template that is compiled for each.
#pragma once

#include "base/check.h"

namespace nibble::cuda {

/// Calls act.operator()<value>() for the one of kValues that `value` is; CHECKs that it is one.
template <auto kFirst, auto... kRest, typename Act>
decltype(auto) with_value(decltype(kFirst) value, const Act& act) {
  if constexpr (sizeof...(kRest) == 0) {
    CHECK(value == kFirst, "no kernel for value ", static_cast<int>(value));
    return act.template operator()<kFirst>();
  } else {
    if (value == kFirst) return act.template operator()<kFirst>();
    return with_value<kRest...>(value, act);
  }
}

}  // namespace nibble::cuda
