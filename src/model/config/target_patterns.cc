// Shapes of names, in three steps from general to exact.
#include "model/config/target_patterns.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "base/concat.h"

namespace nibble {
namespace {

constexpr std::string_view kAnyPrefix = R"(re:(?:model\.|language_model\.)*)";
constexpr std::string_view kLayers = "layers.";
constexpr std::string_view kExperts = ".experts";
constexpr std::string_view kBelow = R"((?:\..*)?)";  // all experts of a layer, and the list itself
constexpr size_t kLayersMax = 128;                   // in one pattern: readers limit its length

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// "layers.3.mlp.gate" of "model.language_model.layers.3.mlp.gate".
std::string_view without_prefix(std::string_view module) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view prefix : {"model.", "language_model."})
      if (module.starts_with(prefix)) {
        module.remove_prefix(prefix.size());
        found = true;
      }
  }
  return module;
}

enum class Numbers : uint8_t { free, free_but_the_layer, exact };

/// The name as a regular expression. A layer that may vary elsewhere stands as "@".
std::string shape_of(std::string_view tail, Numbers numbers) {
  std::string out;
  int index = 0;
  for (size_t begin = 0; begin <= tail.size(); ++index) {
    const size_t end = std::min(tail.find('.', begin), tail.size());
    const auto part = tail.substr(begin, end - begin);
    if (index > 0) out += "\\.";
    const bool is_number = all_digits(part) && numbers != Numbers::exact;
    if (is_number && index == 1 && numbers == Numbers::free_but_the_layer)
      out += "@";
    else
      out += is_number ? std::string_view("\\d+") : part;
    begin = end + 1;
  }
  return tail.ends_with(kExperts) ? concat(out, kBelow) : out;
}

std::string layer_of(std::string_view tail) {
  if (!tail.starts_with(kLayers)) return "";
  return std::string(tail.substr(kLayers.size(), tail.find('.', kLayers.size()) - kLayers.size()));
}

std::string pattern_of(std::string_view shape) { return concat(kAnyPrefix, shape, "$"); }

/// The names that modules of other schemes occupy, so that no pattern takes one of them. A list of
/// experts occupies the names of its experts, and an expert that of its list.
class Taken {
 public:
  explicit Taken(const std::vector<std::string>& others) {
    for (const std::string& module : others) {
      if (!in_text_model(module) && !is_mtp(module)) continue;
      const std::string_view tail = without_prefix(module);
      add(tail);
      const size_t experts = tail.find(concat(kExperts, "."));
      if (experts != std::string_view::npos) add(tail.substr(0, experts + kExperts.size()));
      if (!tail.ends_with(kExperts)) continue;
      for (const std::string_view linear : {".0.gate_proj", ".0.up_proj", ".0.down_proj"})
        add(concat(tail, linear));
    }
  }
  bool anywhere(std::string_view tail) const {
    return shapes_.contains(shape_of(tail, Numbers::free));
  }
  bool in_its_layer(std::string_view tail) const {
    return by_layer_.contains({layer_of(tail), shape_of(tail, Numbers::free_but_the_layer)});
  }

 private:
  void add(std::string_view tail) {
    shapes_.insert(shape_of(tail, Numbers::free));
    by_layer_.insert({layer_of(tail), shape_of(tail, Numbers::free_but_the_layer)});
  }
  std::set<std::string> shapes_;
  std::set<std::pair<std::string, std::string>> by_layer_;
};

/// The shape with its "@" replaced by these layers.
std::string with_layers(std::string_view shape, const std::vector<std::string>& layers) {
  std::string list;
  for (const std::string& layer : layers) list += concat(list.empty() ? "" : "|", layer);
  const size_t at = shape.find('@');
  return concat(shape.substr(0, at), layers.size() == 1 ? list : concat("(?:", list, ")"),
                shape.substr(at + 1));
}

}  // namespace

bool in_text_model(std::string_view module) {
  const std::string_view tail = without_prefix(module);
  return tail.starts_with(kLayers) || tail == "lm_head" || tail == "embed_tokens";
}

std::vector<std::string> target_patterns(const std::vector<std::string>& modules,
                                         const std::vector<std::string>& others) {
  const Taken taken(others);
  std::set<std::string> out;
  std::map<std::string, std::vector<std::string>> layers;  // of a shape that is not free
  for (const std::string& module : modules) {
    const std::string_view tail = without_prefix(module);
    if (is_mtp(module) && !taken.anywhere(tail)) {
      out.insert(concat("re:", shape_of(tail, Numbers::free), "$"));
    } else if (!in_text_model(module)) {
      out.insert(module);
    } else if (!taken.anywhere(tail)) {
      out.insert(pattern_of(shape_of(tail, Numbers::free)));
    } else if (!tail.starts_with(kLayers) || taken.in_its_layer(tail)) {
      out.insert(pattern_of(shape_of(tail, Numbers::exact)));
    } else {
      auto& list = layers[shape_of(tail, Numbers::free_but_the_layer)];
      if (std::ranges::find(list, layer_of(tail)) == list.end()) list.push_back(layer_of(tail));
    }
  }
  for (const auto& [shape, list] : layers)
    for (size_t begin = 0; begin < list.size(); begin += kLayersMax) {
      const size_t end = std::min(begin + kLayersMax, list.size());
      out.insert(pattern_of(with_layers(shape, {list.begin() + static_cast<ptrdiff_t>(begin),
                                                list.begin() + static_cast<ptrdiff_t>(end)})));
    }
  return {out.begin(), out.end()};
}

}  // namespace nibble
