// The walk through allOf, anyOf, oneOf and $ref.
#include "grammar/schema_facts.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "grammar/pattern_reader.h"
#include "grammar/schema_conditions.h"
#include "grammar/schema_pointer.h"

namespace nibble {

namespace {

constexpr size_t kAlternativesMax = 256;

/// A pointer as the fragment of a URI (RFC 6901, 6): one line, whatever names it holds.
std::string fragment(std::string_view pointer) {
  constexpr const char* kHex = "0123456789ABCDEF";
  std::string out = "#";
  for (const char c : pointer) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += '%';
      out += kHex[byte / 16];
      out += kHex[byte % 16];
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Error schema_refusal(const std::string& at, std::string_view why) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("the schema at ", fragment(at)), .expected = why});
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string hex(text.substr(std::min(i + 1, text.size()), 2));
    const bool code = text[i] == '%' && hex.size() == 2 && std::isxdigit(hex[0]) != 0 &&
                      std::isxdigit(hex[1]) != 0;
    out += code ? static_cast<char>(std::stoi(hex, nullptr, 16)) : text[i];
    if (code) i += 2;
  }
  return out;
}

std::string escaped_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

Result<SchemaPlace> SchemaFacts::target(const SchemaPlace& reference) const {
  const Json* value = reference.schema->find("$ref");
  const std::string at = concat(reference.at, "/$ref");
  if (value == nullptr || !value->is_string() || !value->as_string().starts_with("#"))
    return schema_refusal(at, "a reference inside the schema, \"#/...\"");
  const std::string path = percent_decoded(std::string_view(value->as_string()).substr(1));
  if (!path.empty() && path.front() != '/') return schema_refusal(at, "a JSON pointer");
  const Json* found = pointed_at(root_, path).value;
  if (found == nullptr) return schema_refusal(at, "a reference to something that is there");
  if (!found->is_object() && !found->is_bool())
    return schema_refusal(at, "a reference to a schema");
  return SchemaPlace{found, path};
}

/// The alternatives of oneOf must exclude each other, beside the keywords of the schema itself;
/// values that enum or const list are looked at one by one instead.
Result<void> SchemaFacts::check_one_of(const SchemaPlace& place) {
  const Json& schema = *place.schema;
  const Json* list = schema.find("oneOf");
  const bool listed = schema.find("enum") != nullptr || schema.find("const") != nullptr;
  if (list == nullptr || listed) return {};
  Json::Object own;
  for (const Json::Member& member : schema.as_object())
    if (member.key != "oneOf" && member.key != "anyOf" && member.key != "allOf" &&
        member.key != "$ref")
      own.push_back(member);
  const SchemaPlace base = {&made_.emplace_back(std::move(own)), place.at};
  const Json::Array& options = list->as_array();
  for (size_t i = 0; i < options.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      const std::string at = concat(place.at, "/oneOf/");
      if (TRY(apart({base, {&options[i], concat(at, i)}}, {base, {&options[k], concat(at, k)}})))
        continue;
      return schema_refusal(concat(place.at, "/oneOf"),
                            concat("alternatives that exclude each other; ", k, " and ", i,
                                   " seem to overlap (anyOf takes such)"));
    }
  return {};
}

/// Adds alternatives of a list of schemas: each that is there, with each of the list.
Result<void> SchemaFacts::expand_choice(const SchemaPlace& place, const char* keyword,
                                        const Way& way, std::vector<Alternative>& made) {
  const Json* list = place.schema->find(keyword);
  if (list == nullptr) return {};
  const std::string at = concat(place.at, "/", keyword);
  std::vector<Alternative> all;
  for (size_t i = 0; i < list->as_array().size(); ++i) {
    std::vector<Alternative> with = made;
    TRY(expand({&list->as_array()[i], concat(at, "/", i)}, way, with));
    all.insert(all.end(), with.begin(), with.end());
    if (all.size() > kAlternativesMax)
      return schema_refusal(at, concat("at most ", kAlternativesMax, " alternatives in all"));
  }
  made = std::move(all);
  return {};
}

/// Where alternatives of oneOf overlap, each is taken without the others, if that can be said.
Result<void> SchemaFacts::expand_one_of(const SchemaPlace& place, const Way& way,
                                        std::vector<Alternative>& made) {
  const Json* list = place.schema->find("oneOf");
  if (list == nullptr) return {};
  if (!one_of_.contains(place.schema)) {
    one_of_[place.schema] = nullptr;  // as it is, also for what leads back here
    if (const auto apart = check_one_of(place); !apart.ok()) {
      const bool unevaluated = mentions(root_, {"unevaluatedProperties", "unevaluatedItems"});
      auto options = unevaluated ? std::optional<Json>() : exclusive_options(*list, root_);
      if (!options) {
        one_of_.erase(place.schema);
        return apart.error();
      }
      one_of_[place.schema] = &made_.emplace_back(*std::move(options));
    }
  }
  const Json* options = one_of_[place.schema];
  if (options == nullptr) return expand_choice(place, "oneOf", way, made);
  return expand_choice({options, concat(place.at, "/oneOf")}, "anyOf", way, made);
}

Result<void> SchemaFacts::expand(const SchemaPlace& place, Way way,
                                 std::vector<Alternative>& made) {
  const Json& schema = *place.schema;
  if (schema == Json(true) || (schema.is_object() && schema.as_object().empty())) return {};
  if (schema.is_bool()) {
    made.clear();
    return {};
  }
  if (std::ranges::find(way, &schema) != way.end())
    return schema_refusal(place.at, "a schema that does not lead back to itself");
  way.push_back(&schema);
  for (Alternative& parts : made) parts.push_back({place, way});
  if (schema.find("$ref") != nullptr) {
    const SchemaPlace next = TRY(target(place));
    TRY(expand(next, way, made));
  }
  if (const Json* all = schema.find("allOf"))
    for (size_t i = 0; i < all->as_array().size(); ++i)
      TRY(expand({&all->as_array()[i], concat(place.at, "/allOf/", i)}, way, made));
  TRY(expand_choice(place, "anyOf", way, made));
  return expand_one_of(place, way, made);
}

Result<std::vector<Alternative>> SchemaFacts::alternatives(const Together& together) {
  std::vector<Alternative> made = {{}};
  for (const SchemaPlace& place : together) TRY(expand(place, {}, made));
  return made;
}

Result<unsigned> SchemaFacts::types(const Alternative& parts) {
  unsigned made = kEveryType;
  for (const SchemaPart& part : parts) {
    const Json* type = part.place.schema->find("type");
    if (type == nullptr) continue;
    unsigned here = 0;
    for (const Json& name : type->is_array() ? type->as_array() : Json::Array{*type}) {
      constexpr std::pair<std::string_view, unsigned> kNames[] = {
          {"null", kNullType},       {"boolean", kBooleanType},
          {"integer", kIntegerType}, {"number", kNumberType | kIntegerType},
          {"string", kStringType},   {"array", kArrayType},
          {"object", kObjectType}};
      const auto* known = std::ranges::find_if(kNames, [&](const auto& row) {
        return name.is_string() && row.first == name.as_string();
      });
      if (known == std::end(kNames))
        return schema_refusal(concat(part.place.at, "/type"),
                              "string, integer, number, boolean, null, array or object");
      here |= known->second;
    }
    made &= here;
  }
  return made;
}

Result<Pattern> SchemaFacts::pattern_at(const SchemaPlace& place, const char* keyword) {
  const Json* value = place.schema->find(keyword);
  if (value == nullptr) return Pattern();
  const bool encoding = std::string_view(keyword) == "contentEncoding";
  if (encoding && *value != Json("base64") && *value != Json("base64url"))
    return schema_refusal(concat(place.at, "/", keyword), "base64 or base64url");
  const bool format = encoding || std::string_view(keyword) == "format";
  const auto made = !value->is_string() ? Result<Pattern>(Pattern())
                    : format            ? format_pattern(value->as_string())
                                        : read_pattern(value->as_string());
  const std::string at = concat(place.at, "/", keyword);
  if (!made.ok()) return schema_refusal(at, made.error().message);
  if (!made.value())
    return schema_refusal(at, format ? "a format that is enforced, such as date-time" : "a string");
  return made.value();
}

Result<const Language*> SchemaFacts::language(const std::string& key, const Pattern& pattern) {
  const auto found = languages_.find(key);
  if (found != languages_.end()) return &found->second;
  return &languages_.emplace(key, TRY(Language::of(pattern))).first->second;
}

Result<Pattern> SchemaFacts::string_pattern(const Alternative& parts) {
  Pattern first;
  std::optional<Language> all;
  for (const SchemaPart& part : parts)
    for (const char* keyword : kTextKeywords) {
      const Pattern made = TRY(pattern_at(part.place, keyword));
      if (!made) continue;
      if (!first) {
        first = made;
        continue;
      }
      if (!all) all = TRY(Language::of(first));
      const Language more = TRY(Language::of(made));
      all = TRY(Language::both(*all, more));
    }
  if (all) return all->pattern();
  return first;
}

Result<Language> SchemaFacts::names(const Together& together) {
  std::vector<Pattern> options;
  for (const Alternative& alternative : TRY(alternatives(together))) {
    if (says(alternative, {"enum", "const"})) {
      for (const SchemaPart& part : alternative)
        if (const Json* list = part.place.schema->find("enum"))
          for (const Json& word : list->as_array())
            if (word.is_string() && TRY(valid(alternative, word)))
              options.push_back(text_pattern(word.as_string()));
      for (const SchemaPart& part : alternative)
        if (const Json* word = part.place.schema->find("const"))
          if (word->is_string() && TRY(valid(alternative, *word)))
            options.push_back(text_pattern(word->as_string()));
      continue;
    }
    if ((TRY(types(alternative)) & kStringType) == 0) continue;
    Pattern made = TRY(string_pattern(alternative));
    if (!made) made = anything_pattern();
    Language names_here = TRY(Language::of(made));
    for (const SchemaPart& part : alternative) {
      const Json* low = part.place.schema->find("minLength");
      const Json* high = part.place.schema->find("maxLength");
      if (low == nullptr && high == nullptr) continue;
      const auto count = [](const Json* b, int none) {
        return b != nullptr ? static_cast<int>(b->as_double()) : none;
      };
      if (high != nullptr && count(high, -1) < count(low, 0)) {
        names_here = TRY(Language::of(choice_pattern({})));
        continue;
      }
      const Language counted = TRY(Language::of(repeat_pattern(
          characters_pattern({{0, kLastCharacter}}), count(low, 0), count(high, -1))));
      names_here = TRY(Language::both(names_here, counted));
    }
    options.push_back(TRY(names_here.pattern()));
  }
  return Language::of(choice_pattern(std::move(options)));
}

Result<Together> SchemaFacts::property(const Alternative& parts, const std::string& name) {
  Together made;
  std::set<const Json*> evaluated;  // the schemas that say something of it, or hold one that does
  for (const SchemaPart& part : parts) {
    const SchemaPlace& place = part.place;
    bool named = false;
    const Json* properties = place.schema->find("properties");
    if (const Json* found = properties != nullptr ? properties->find(name) : nullptr) {
      named = true;
      made.push_back({found, concat(place.at, "/properties/", escaped_name(name))});
    }
    if (const Json* patterns = place.schema->find("patternProperties"))
      for (const auto& [pattern, value] : patterns->as_object()) {
        const std::string at = concat(place.at, "/patternProperties/", escaped_name(pattern));
        const auto read = read_pattern(pattern);
        if (!read.ok()) return schema_refusal(at, read.error().message);
        if (!TRY(language(pattern, read.value()))->accepts(name)) continue;
        named = true;
        made.push_back({&value, at});
      }
    const Json* others = place.schema->find("additionalProperties");
    if (others != nullptr && !named)
      made.push_back({others, concat(place.at, "/additionalProperties")});
    if (named || others != nullptr) evaluated.insert(part.way.begin(), part.way.end());
  }
  for (size_t i = parts.size(); i-- > 0;) {
    const SchemaPlace& place = parts[i].place;
    const Json* rest = place.schema->find("unevaluatedProperties");
    if (rest == nullptr || evaluated.contains(place.schema)) continue;
    made.push_back({rest, concat(place.at, "/unevaluatedProperties")});
    evaluated.insert(parts[i].way.begin(), parts[i].way.end());
  }
  return made;
}

Together SchemaFacts::item(const Alternative& parts, size_t index) {
  Together made;
  for (const SchemaPart& part : parts) {
    const Json& schema = *part.place.schema;
    const Json* items = schema.find("items");
    const bool old = items != nullptr && items->is_array();
    const char* name = old ? "items" : "prefixItems";
    const Json* first = schema.find(name);
    const size_t count = first != nullptr && first->is_array() ? first->as_array().size() : 0;
    const char* others = old ? "additionalItems" : "items";
    const Json* rest = schema.find(others);
    if (rest == nullptr) rest = schema.find(others = "unevaluatedItems");
    if (index < count)
      made.push_back({&first->as_array()[index], concat(part.place.at, "/", name, "/", index)});
    else if (rest != nullptr)
      made.push_back({rest, concat(part.place.at, "/", others)});
  }
  return made;
}

}  // namespace nibble
