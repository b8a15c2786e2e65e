// The comparison goes part by part, so that an error names the part.
#include "model/reserved_bytes.h"

namespace nibble {

Result<void> check_reserved(const ReservedBytes& planned, const ReservedBytes& reserved,
                            std::string_view when) {
  struct Part {
    std::string_view name;
    int64_t ReservedBytes::*bytes;
  };
  constexpr Part kParts[] = {
      {"weights", &ReservedBytes::weights},     {"rotary tables", &ReservedBytes::tables},
      {"KV pages", &ReservedBytes::pages},      {"states", &ReservedBytes::states},
      {"workspace", &ReservedBytes::workspace}, {"memory of media", &ReservedBytes::media}};
  for (const Part& part : kParts)
    if (planned.*part.bytes != reserved.*part.bytes)
      return make_error(
          ErrorCode::internal,
          {.what = concat("the memory plan is wrong ", when, ": ", part.name),
           .expected = concat(planned.*part.bytes, " bytes, as planned"),
           .found = concat(reserved.*part.bytes, " reserved"),
           .advice = "please report this with the start lines of the server and its flags"});
  return {};
}

}  // namespace nibble
