// The words; the bounds are those of model/pages/kv_bounds.h.
#include "cli/loading/kv_range.h"

#include <algorithm>
#include <cmath>

#include "base/concat.h"
#include "tensor/float_formats.h"

namespace nibble {

namespace {

/// Rows whose numbers were rounded to 4 bits are longer by less than this; those of 8 bits by 1/16.
constexpr double kRounding = 1.25;

std::string place(const char* what, const KvBound& bound) {
  return concat(what, " ", std::ceil(bound.most), " (", bound.layer, ")");
}

}  // namespace

std::string kv_range_notice(const KvBounds& bounds) {
  const std::string both =
      concat(place("keys up to", bounds.keys), " and ", place("values up to", bounds.values));
  if (std::max(bounds.keys.most, bounds.values.most) * kRounding <= kE4m3Max)
    return concat("FP8 pages: the weights allow ", both, " of ", kE4m3Max,
                  ", so none is cut off\n");
  return concat("FP8 pages: the weights would allow ", both, " for some input, where FP8 ends at ",
                kE4m3Max, ": nibble eval kv says what it costs\n");
}

}  // namespace nibble
