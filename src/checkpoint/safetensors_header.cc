// Every number of the header is checked before it is used: sizes against the file, the product of
// the shape against overflow, ranges against each other.
#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>

#include "base/json.h"

namespace nibble {

namespace {

constexpr std::string_view kCopyAgain = "download or copy the file again";

Error bad_tensor(ErrorCode code, std::string_view source, std::string_view name,
                 const ErrorParts& parts) {
  const std::string what = concat(source, ": tensor ", quoted_name(name), ": ", parts.what);
  return make_error(
      code,
      {.what = what, .expected = parts.expected, .found = parts.found, .advice = parts.advice});
}

Result<Shape> parse_shape(const Json* json, std::string_view source, std::string_view name) {
  if (json == nullptr || !json->is_array()) {
    return bad_tensor(ErrorCode::corrupt, source, name,
                      {.what = "bad shape",
                       .expected = "a list of integers",
                       .found = json == nullptr ? "none" : json->type_name()});
  }
  const Json::Array& sizes = json->as_array();
  if (sizes.size() > Shape::kRankMax) {
    return bad_tensor(ErrorCode::unsupported, source, name,
                      {.what = "too many dimensions",
                       .expected = concat("at most ", Shape::kRankMax),
                       .found = concat(sizes.size())});
  }
  std::array<int64_t, Shape::kRankMax> values = {};
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    if (!sizes[axis].is_int() || sizes[axis].as_int() < 0) {
      return bad_tensor(ErrorCode::corrupt, source, name,
                        {.what = "bad shape",
                         .expected = "sizes from 0 to 2^63 - 1",
                         .found = sizes[axis].dump().substr(0, 40)});
    }
    values[axis] = sizes[axis].as_int();
  }
  return Shape(std::span(values.data(), sizes.size()));
}

/// Bytes of the tensor; the product of the sizes may not overflow.
Result<int64_t> checked_bytes(DType dtype, const Shape& shape, std::string_view source,
                              std::string_view name) {
  int64_t bits = dtype_info(dtype).bits;
  bool overflow = false;
  for (const int64_t size : shape.sizes()) overflow |= __builtin_mul_overflow(bits, size, &bits);
  // A zero after an overflow still describes nothing that could be in a file.
  if (overflow || bits % 8 != 0) {
    return bad_tensor(ErrorCode::corrupt, source, name,
                      {.what = "impossible shape",
                       .expected = "a whole number of bytes below 2^60",
                       .found = concat(shape.text(), " ", dtype_info(dtype).name)});
  }
  return bits / 8;
}

/// [begin, end) relative to the data; only ordered here, the file's size is checked by the caller.
Result<std::pair<uint64_t, uint64_t>> parse_offsets(const Json* json, std::string_view source,
                                                    std::string_view name) {
  const auto natural = [](const Json& value) { return value.is_int() && value.as_int() >= 0; };
  if (json == nullptr || !json->is_array() || json->as_array().size() != 2 ||
      !std::ranges::all_of(json->as_array(), natural) ||
      json->as_array()[0].as_int() > json->as_array()[1].as_int()) {
    return bad_tensor(ErrorCode::corrupt, source, name,
                      {.what = "bad data_offsets",
                       .expected = "[begin, end] with 0 <= begin <= end",
                       .found = json == nullptr ? "none" : json->dump().substr(0, 60)});
  }
  return std::pair(static_cast<uint64_t>(json->as_array()[0].as_int()),
                   static_cast<uint64_t>(json->as_array()[1].as_int()));
}

Result<void> refuse_unknown_keys(const Json& info, std::string_view source, std::string_view name) {
  for (const auto& member : info.as_object()) {
    if (member.key == "dtype" || member.key == "shape" || member.key == "data_offsets") continue;
    return bad_tensor(ErrorCode::corrupt, source, name,
                      {.what = "unknown key",
                       .expected = "dtype, shape, data_offsets",
                       .found = quoted_name(member.key)});
  }
  return {};
}

/// `offset` of the result is still relative to the data.
Result<TensorEntry> parse_tensor(std::string_view name, const Json& info, std::string_view source) {
  if (!info.is_object()) {
    return bad_tensor(ErrorCode::corrupt, source, name,
                      {.what = "bad entry", .expected = "an object", .found = info.type_name()});
  }
  TRY(refuse_unknown_keys(info, source, name));
  const Json* dtype = info.find("dtype");
  if (dtype == nullptr || !dtype->is_string()) {
    return bad_tensor(ErrorCode::corrupt, source, name,
                      {.what = "bad dtype",
                       .expected = "a string",
                       .found = dtype == nullptr ? "none" : dtype->type_name()});
  }
  const auto type = parse_dtype(dtype->as_string());
  if (!type.ok()) {
    return bad_tensor(type.error().code, source, name, {.what = type.error().message});
  }
  const Shape shape = TRY(parse_shape(info.find("shape"), source, name));
  const auto [begin, end] = TRY(parse_offsets(info.find("data_offsets"), source, name));
  const int64_t bytes = TRY(checked_bytes(type.value(), shape, source, name));
  if (static_cast<uint64_t>(bytes) != end - begin) {
    return bad_tensor(ErrorCode::corrupt, source, name,
                      {.what = concat("size disagrees with shape ", shape.text(), " ",
                                      dtype_info(type.value()).name),
                       .expected = concat(bytes, " bytes"),
                       .found = concat(end - begin)});
  }
  return TensorEntry{.name = std::string(name),
                     .dtype = type.value(),
                     .shape = shape,
                     .file = 0,
                     .offset = begin,
                     .bytes = bytes};
}

Result<void> parse_metadata(const Json& json, std::string_view source, SafetensorsHeader& header) {
  const auto refuse = [&](std::string_view found) {
    return make_error(ErrorCode::corrupt, {.what = concat(source, ": bad __metadata__"),
                                           .expected = "an object of strings",
                                           .found = found});
  };
  if (!json.is_object()) return refuse(json.type_name());
  for (const auto& [key, value] : json.as_object()) {
    if (!value.is_string()) return refuse(concat(value.type_name(), " at ", quoted_name(key)));
    header.metadata.emplace_back(key, value.as_string());
  }
  return {};
}

/// Ranges must follow each other from 0 to the end of the file, as the format demands. Makes the
/// offsets absolute.
Result<void> check_ranges(std::vector<TensorEntry>& tensors, uint64_t data_begin,
                          uint64_t data_bytes, std::string_view source) {
  std::ranges::sort(tensors, [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  uint64_t covered = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorEntry& tensor = tensors[i];
    const uint64_t end = tensor.offset + static_cast<uint64_t>(tensor.bytes);
    if (end > data_bytes) {
      return bad_tensor(ErrorCode::corrupt, source, tensor.name,
                        {.what = "lies outside the file, which may be truncated",
                         .expected = concat("at least ", data_begin + end, " bytes"),
                         .found = concat(data_begin + data_bytes),
                         .advice = kCopyAgain});
    }
    if (tensor.offset < covered) {
      return bad_tensor(ErrorCode::corrupt, source, tensor.name,
                        {.what = concat("overlaps tensor ", quoted_name(tensors[i - 1].name)),
                         .expected = concat("begin ", covered),
                         .found = concat(tensor.offset)});
    }
    if (tensor.offset > covered) {
      return bad_tensor(ErrorCode::corrupt, source, tensor.name,
                        {.what = "a hole lies before it",
                         .expected = concat("begin ", covered),
                         .found = concat(tensor.offset)});
    }
    covered = end;
    tensor.offset += data_begin;
  }
  if (covered == data_bytes) return {};
  return make_error(ErrorCode::corrupt, {.what = concat(source, ": bytes after the last tensor"),
                                         .expected = concat(data_begin + covered, " bytes"),
                                         .found = concat(data_begin + data_bytes),
                                         .advice = kCopyAgain});
}

}  // namespace

std::string quoted_name(std::string_view name) {
  constexpr size_t kShownMax = 200;
  std::string out;
  append_json_string(out, name.substr(0, kShownMax));
  if (name.size() > kShownMax) out += "...";
  return out;
}

Result<uint64_t> safetensors_header_bytes(std::span<const std::byte> prefix, uint64_t file_bytes,
                                          std::string_view source) {
  if (prefix.size() < kSafetensorsPrefixBytes || file_bytes < kSafetensorsPrefixBytes) {
    return make_error(ErrorCode::corrupt, {.what = concat(source, " is no safetensors file"),
                                           .expected = "at least 8 bytes",
                                           .found = concat(std::min<uint64_t>(file_bytes, 8)),
                                           .advice = kCopyAgain});
  }
  uint64_t length = 0;
  for (size_t i = kSafetensorsPrefixBytes; i-- > 0;) {
    length = length << 8 | static_cast<uint64_t>(prefix[i]);
  }
  if (length > kSafetensorsHeaderBytesMax) {
    return make_error(ErrorCode::corrupt,
                      {.what = concat(source, " is no safetensors file: header too long"),
                       .expected = concat("at most ", kSafetensorsHeaderBytesMax, " bytes"),
                       .found = concat(length)});
  }
  if (length > file_bytes - kSafetensorsPrefixBytes) {
    return make_error(ErrorCode::corrupt,
                      {.what = concat(source, " is truncated inside its header"),
                       .expected = concat("at least ", length + kSafetensorsPrefixBytes, " bytes"),
                       .found = concat(file_bytes),
                       .advice = kCopyAgain});
  }
  return length;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, uint64_t file_bytes,
                                                   std::string_view source) {
  const uint64_t data_begin = kSafetensorsPrefixBytes + text.size();
  CHECK(data_begin <= file_bytes, "header of ", text.size(), " bytes in ", file_bytes);
  if (!text.starts_with('{')) {
    return make_error(ErrorCode::corrupt, {.what = concat(source, " is no safetensors file"),
                                           .expected = "a header that begins with {",
                                           .found = quoted_name(text.substr(0, 1))});
  }
  const JsonLimits limits = {.bytes_max = kSafetensorsHeaderBytesMax, .depth_max = 4};
  const Json json = TRY(parse_json(text, concat(source, " header"), limits));
  SafetensorsHeader header;
  header.tensors.reserve(json.as_object().size());
  for (const auto& [name, info] : json.as_object()) {
    if (name == "__metadata__") {
      TRY(parse_metadata(info, source, header));
    } else {
      header.tensors.push_back(TRY(parse_tensor(name, info, source)));
    }
  }
  TRY(check_ranges(header.tensors, data_begin, file_bytes - data_begin, source));
  return header;
}

Result<SafetensorsHeader> read_safetensors_header(const File& file) {
  const std::string source = file.path().filename().string();
  const uint64_t file_bytes = TRY(file.size());
  std::array<std::byte, kSafetensorsPrefixBytes> prefix = {};
  if (file_bytes >= prefix.size()) TRY(file.read_at(prefix, 0));
  const uint64_t length = TRY(safetensors_header_bytes(prefix, file_bytes, source));
  std::string text(length, '\0');
  TRY(file.read_at(std::as_writable_bytes(std::span(text)), kSafetensorsPrefixBytes));
  return parse_safetensors_header(text, file_bytes, source);
}

}  // namespace nibble
