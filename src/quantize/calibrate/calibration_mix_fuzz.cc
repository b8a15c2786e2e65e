// Fuzz entry: one calibration mix, one list of files, one field map, or one record, by the first
// byte. Anything is read or refused in one line.
#include "quantize/calibrate/calibration_data.h"
#include "quantize/calibrate/calibration_record.h"

namespace {

template <typename T>
void check_line(const nibble::Result<T>& result) {
  if (result.ok()) return;
  CHECK(result.error().message.find('\n') == std::string::npos, result.error().message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'f':
      check_line(nibble::parse_calibration_sources(text));
      return 0;
    case 'm':
      check_line(nibble::parse_field_map(text));
      return 0;
    case 'r': {
      const auto record = nibble::parse_json(text, "fuzz");
      if (!record.ok()) return 0;
      const nibble::Json messages =
          nibble::record_messages(record.value(), {{"prompt", "query"}, {"response", "reply"}});
      CHECK(messages.is_null() || messages.is_array(), messages.dump());
      return 0;
    }
    default: {
      const auto mix = nibble::parse_calibration_mix(text, "fuzz", "folder");
      check_line(mix);
      CHECK(!mix.ok() || !mix.value().sources.empty(), "no sources");
      return 0;
    }
  }
}
