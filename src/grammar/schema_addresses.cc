// Two walks: the first collects the addresses of all schemas, the second writes the references
// anew. A schema with an `$id` begins a document of its own, from which pointers inside it count.
#include "grammar/schema_addresses.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "grammar/schema_conditions.h"
#include "grammar/schema_facts.h"
#include "grammar/schema_keywords.h"
#include "grammar/uri.h"

namespace nibble {

namespace {

/// A pointer as the fragment of a URI that percent_decoded() reads.
std::string as_fragment(std::string_view pointer) {
  std::string out = "#";
  for (const char c : pointer)
    if (c == '%')
      out += "%25";
    else
      out += c;
  return out;
}

const std::string* text_of(const Json& schema, const char* keyword) {
  const Json* found = schema.find(keyword);
  return found != nullptr && found->is_string() ? &found->as_string() : nullptr;
}

class Addresses {
 public:
  void collect(const Json& schema, const Uri& base, const std::string& at);
  Result<Json> rewrite(const Json& schema, const Uri& base, const std::string& at) const;
  /// False if all that there is to know is that pointers begin at the root.
  bool matter() const { return places_.size() > 1 || places_.begin()->second.size() > 1; }

 private:
  Result<std::string> pointer(const Uri& target, const std::string& at) const;
  Result<std::string> reference(const std::string& text, const Uri& own, const Uri& base,
                                const std::string& at) const;
  /// The base of what is inside a schema: its own `$id` if it has one that names a document.
  static Uri inside(const Json& schema, const Uri& base);
  void add(const std::string& address, const std::string& at) { places_[address].insert(at); }
  template <typename Inner>
  static void each_inside(const Json& value, std::string_view keyword, const Inner& inner);

  std::map<std::string, std::set<std::string>> places_;  // addresses without and with fragments
  std::set<std::string> schemas_;                        // pointers to all schemas
};

Uri Addresses::inside(const Json& schema, const Uri& base) {
  const std::string* id = text_of(schema, "$id");
  if (id == nullptr || id->starts_with('#')) return base;
  Uri made = resolved_uri(base, *id);
  made.fragment.clear();
  return made;
}

/// Calls inner(schema, pointer from the keyword) for each schema in the value of a keyword.
template <typename Inner>
void Addresses::each_inside(const Json& value, std::string_view keyword, const Inner& inner) {
  if (value.is_object() && is_one_of(kSchemaMaps, keyword)) {
    for (const Json::Member& member : value.as_object())
      inner(member.value, concat("/", escaped_name(member.key)));
  } else if (value.is_array() && is_one_of(kSchemaLists, keyword)) {
    for (size_t i = 0; i < value.as_array().size(); ++i) inner(value.as_array()[i], concat("/", i));
  } else if (is_one_of(kSingleSchemas, keyword)) {
    inner(value, std::string());
  }
}

void Addresses::collect(const Json& schema, const Uri& base, const std::string& at) {
  schemas_.insert(at);
  if (!schema.is_object()) return;
  const Uri own = inside(schema, base);
  const std::string* id = text_of(schema, "$id");
  if (at.empty() || (id != nullptr && !id->starts_with('#'))) add(own.document(), at);
  // Draft 7 has anchors as an `$id` with a fragment.
  if (id != nullptr)
    if (const Uri named = resolved_uri(base, *id); !named.fragment.empty())
      add(concat(named.document(), "#", named.fragment), at);
  for (const char* keyword : {"$anchor", "$dynamicAnchor"})
    if (const std::string* name = text_of(schema, keyword))
      add(concat(own.document(), "#", *name), at);
  for (const auto& [name, value] : schema.as_object())
    each_inside(value, name, [&, &keyword = name](const Json& inner, const std::string& below) {
      collect(inner, own, concat(at, "/", keyword, below));
    });
}

/// Where a reference leads to; empty: out of the schema.
Result<std::string> Addresses::pointer(const Uri& target, const std::string& at) const {
  const bool anchor = !target.fragment.empty() && target.fragment.front() != '/';
  const auto found =
      places_.find(anchor ? concat(target.document(), "#", target.fragment) : target.document());
  if (found == places_.end()) return std::string();
  if (found->second.size() > 1) return schema_refusal(at, "an address that one schema has");
  const std::string& document = *found->second.begin();
  const std::string made = anchor ? document : concat(document, percent_decoded(target.fragment));
  if (!schemas_.contains(made)) return schema_refusal(at, "a reference to a schema");
  return as_fragment(made);
}

/// The reference of a schema whose own base is `own`, inside one whose base is `base`.
Result<std::string> Addresses::reference(const std::string& text, const Uri& own, const Uri& base,
                                         const std::string& at) const {
  const std::string place = concat(at, "/$ref");
  const std::string to = TRY(pointer(resolved_uri(own, text), place));
  // An `$id` beside a reference is its base since 2019 and means nothing before.
  const bool has_own = own.document() != base.document() && !at.empty();
  if (has_own && to != TRY(pointer(resolved_uri(base, text), place)))
    return schema_refusal(concat(at, "/$id"), "no address beside a reference that depends on it");
  return to.empty() ? text : to;
}

Result<Json> Addresses::rewrite(const Json& schema, const Uri& base, const std::string& at) const {
  if (!schema.is_object()) return schema;
  const Uri own = inside(schema, base);
  Json::Object out;
  for (const auto& [name, value] : schema.as_object()) {
    Json made = value;
    if (name == "$ref" && value.is_string())
      made = Json(TRY(reference(value.as_string(), own, base, at)));
    Result<void> sound;
    size_t index = 0;
    each_inside(value, name, [&, &keyword = name](const Json& inner, const std::string& below) {
      auto changed = rewrite(inner, own, concat(at, "/", keyword, below));
      Json& place = below.empty()      ? made
                    : value.is_array() ? made.as_array()[index]
                                       : made.as_object()[index].value;
      ++index;
      if (changed.ok())
        place = std::move(changed).value();
      else if (sound.ok())
        sound = changed.error();
    });
    TRY(sound);
    out.push_back({name, std::move(made)});
  }
  return Json(std::move(out));
}

/// True if a reference is no plain pointer.
bool has_uris(const Json& value) {
  if (value.is_array()) return std::ranges::any_of(value.as_array(), has_uris);
  if (!value.is_object()) return false;
  return std::ranges::any_of(value.as_object(), [](const Json::Member& member) {
    return (member.key == "$ref" && member.value.is_string() && member.value.as_string() != "#" &&
            !member.value.as_string().starts_with("#/")) ||
           has_uris(member.value);
  });
}

}  // namespace

Result<Json> with_pointers(const Json& schema) {
  if (!mentions(schema, {"$ref"})) return schema;
  Addresses addresses;
  addresses.collect(schema, {}, "");
  if (!addresses.matter() && !has_uris(schema)) return schema;
  return addresses.rewrite(schema, {}, "");
}

}  // namespace nibble
