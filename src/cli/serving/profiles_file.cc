// TOML to profiles, strictly; toml++ is seen by this file alone, as headers.
#include "cli/serving/profiles_file.h"

#include <algorithm>

// The library asserts where a file may break it (a time that does not begin with a digit), and
// takes the same for impossible in a release build. Here such a place is an exception, in every
// build.
namespace {
struct BrokenToml {};
[[noreturn]] void broken_toml() { throw BrokenToml(); }
}  // namespace
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) ((expr) ? static_cast<void>(0) : broken_toml())
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include "base/file.h"

namespace nibble {

namespace {

constexpr uint64_t kFileBytesMax = uint64_t{1} << 20;
constexpr size_t kProfilesMax = 64;  // each is a label of the metrics
constexpr size_t kNameBytesMax = 64;

/// `source line 3: what`, as every message begins.
struct Place {
  std::string_view source;
  const toml::node* node;

  std::string of(std::string_view what) const {
    return concat(source, " line ", node->source().begin.line, ": ", what);
  }
};

Error wrong(const Place& place, std::string_view what, std::string_view expected,
            std::string_view found, std::string_view advice = {}) {
  return make_error(
      ErrorCode::invalid_argument,
      {.what = place.of(what), .expected = expected, .found = found, .advice = advice});
}

std::string_view type_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kShownMax = 80;
  return Json(text.size() > kShownMax ? concat(text.substr(0, kShownMax), "...") : text).dump();
}

Error unknown_key(const Place& place, std::string_view key,
                  std::span<const std::string_view> known) {
  const std::string_view near = nearest_name(key, known);
  std::string all;
  for (const auto& name : known) all += concat(all.empty() ? "" : ", ", name);
  return make_error(
      ErrorCode::invalid_argument,
      {.what = place.of(concat("unknown key ", in_quotes(key))),
       .advice = near.empty() ? concat("the keys are ", all) : concat("did you mean ", near, "?")});
}

Result<std::string> text_of(const Place& place, std::string_view key) {
  if (const auto* text = place.node->as_string()) return text->get();
  return wrong(place, key, "a string", type_of(*place.node));
}

Result<std::vector<std::string>> texts_of(const Place& place, std::string_view key) {
  const auto* list = place.node->as_array();
  if (list == nullptr) return wrong(place, key, "a list of strings", type_of(*place.node));
  std::vector<std::string> texts;
  for (const toml::node& item : *list) texts.push_back(TRY(text_of({place.source, &item}, key)));
  return texts;
}

Result<bool> flag_of(const Place& place, std::string_view key) {
  if (const auto* flag = place.node->as_boolean()) return flag->get();
  return wrong(place, key, "true or false", type_of(*place.node));
}

Result<Json> number_of(const Place& place, const ProfileNumber& row) {
  const bool whole = row.kind == ProfileNumber::Kind::whole;
  const std::string range =
      concat(whole ? "a whole number from " : "a number from ", row.least, " to ", row.most);
  if (const auto* integer = place.node->as_integer()) {
    const auto value = static_cast<double>(integer->get());
    if (!(value >= row.least && value <= row.most))
      return wrong(place, row.key, range, concat(integer->get()));
    return whole ? Json(integer->get()) : Json(value);
  }
  const auto* real = place.node->as_floating_point();
  if (real == nullptr || whole) return wrong(place, row.key, range, type_of(*place.node));
  if (!(real->get() >= row.least && real->get() <= row.most))  // NaN is out of any range
    return wrong(place, row.key, range, concat(real->get()));
  return Json(real->get());
}

/// Template variables: any TOML but dates. Depth is bounded by the parser.
Result<Json> json_of(const Place& place, std::string_view key) {
  const toml::node& node = *place.node;
  if (const auto* text = node.as_string()) return Json(text->get());
  if (const auto* integer = node.as_integer()) return Json(integer->get());
  if (const auto* real = node.as_floating_point()) return Json(real->get());
  if (const auto* flag = node.as_boolean()) return Json(flag->get());
  if (const auto* list = node.as_array()) {
    Json::Array items;
    for (const toml::node& item : *list) items.push_back(TRY(json_of({place.source, &item}, key)));
    return Json(std::move(items));
  }
  const auto* table = node.as_table();
  if (table == nullptr)
    return wrong(place, key, "strings, numbers, true, false, lists, tables", type_of(node));
  Json object(Json::Object{});
  for (const auto& [name, value] : *table)
    object.set(name.str(), TRY(json_of({place.source, &value}, key)));
  return object;
}

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {
    keys_ = {"name", "base", "thinking", "template_kwargs", "filters", "locked"};
    for (const ProfileNumber& row : profile_numbers()) keys_.push_back(row.key);
  }
  Result<Profiles> read(const toml::table& root);

 private:
  Place at(const toml::node& node) const { return {source_, &node}; }
  Result<void> list(const toml::node& node);
  Result<void> profile(const toml::node& node);
  Result<std::string> name(const toml::table& table) const;
  Result<Profile> start(const toml::table& table) const;
  Result<void> member(std::string_view key, const toml::node& node, Profile& made) const;
  Result<void> locks(const toml::node& node, Profile& made) const;

  std::string_view source_;
  std::vector<std::string_view> keys_;
  std::vector<std::string> names_;  // of this file
  Profiles profiles_;
};

Result<Profiles> Reader::read(const toml::table& root) {
  constexpr std::string_view kKeys[] = {"default", "profile"};
  for (const auto& [key, node] : root)
    if (key != "default" && key != "profile") return unknown_key(at(node), key.str(), kKeys);
  if (const toml::node* node = root.get("profile")) TRY(list(*node));
  if (const toml::node* node = root.get("default")) {
    const std::string wanted = TRY(text_of(at(*node), "default"));
    if (profiles_.find(wanted) == nullptr)
      return wrong(at(*node), "default", "the name of a profile", in_quotes(wanted));
    profiles_.set_default(wanted);
  }
  return std::move(profiles_);
}

Result<void> Reader::list(const toml::node& node) {
  const auto* found = node.as_array();
  if (found == nullptr)
    return wrong(at(node), "profile", "a list of tables", type_of(node), "write [[profile]]");
  if (found->size() > kProfilesMax)
    return wrong(at(node), "profile", concat("at most ", kProfilesMax), concat(found->size()));
  for (const toml::node& each : *found) TRY(profile(each));
  return {};
}

Result<void> Reader::profile(const toml::node& node) {
  const auto* table = node.as_table();
  if (table == nullptr)
    return wrong(at(node), "profile", "a table", type_of(node), "write [[profile]]");
  Profile made = TRY(start(*table));
  for (const auto& [key, value] : *table)
    if (key != "name" && key != "base" && key != "locked") TRY(member(key.str(), value, made));
  if (const toml::node* locked = table->get("locked")) TRY(locks(*locked, made));
  names_.push_back(made.name);
  profiles_.add(std::move(made));
  return {};
}

Result<std::string> Reader::name(const toml::table& table) const {
  const toml::node* node = table.get("name");
  if (node == nullptr) return wrong(at(table), "a profile", "a name", "none");
  std::string given = TRY(text_of(at(*node), "name"));
  const bool sane =
      !given.empty() && given.size() <= kNameBytesMax && std::ranges::all_of(given, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || c == '.';
      });
  if (!sane)
    return wrong(at(*node), "name",
                 concat("1 to ", kNameBytesMax, " letters, digits, '-', '_' or '.'"),
                 in_quotes(given));
  if (std::ranges::find(names_, given) != names_.end())
    return wrong(at(*node), "name", "each name once", concat(in_quotes(given), " twice"));
  return given;
}

/// A profile with its name and what its base says.
Result<Profile> Reader::start(const toml::table& table) const {
  Profile made{.name = TRY(name(table))};
  const toml::node* node = table.get("base");
  if (node == nullptr) return made;
  const std::string base = TRY(text_of(at(*node), "base"));
  const Profile* found = profiles_.find(base);
  if (found == nullptr)
    return wrong(at(*node), "base", "a built-in profile or one further up", in_quotes(base));
  std::string own = std::move(made.name);
  made = *found;
  made.name = std::move(own);
  return made;
}

Result<void> Reader::member(std::string_view key, const toml::node& node, Profile& made) const {
  if (key == "thinking") {
    made.thinking = TRY(flag_of(at(node), key));
    return {};
  }
  if (key == "template_kwargs") {
    if (node.as_table() == nullptr) return wrong(at(node), key, "a table", type_of(node));
    const Json given = TRY(json_of(at(node), key));
    for (const auto& [variable, value] : given.as_object())
      made.template_kwargs.set(variable, value);
    return {};
  }
  if (key == "filters") {
    made.filters = TRY(texts_of(at(node), key));
    return {};
  }
  for (const ProfileNumber& row : profile_numbers())
    if (row.key == key) {
      made.numbers.set(key, TRY(number_of(at(node), row)));
      return {};
    }
  return unknown_key(at(node), key, keys_);
}

Result<void> Reader::locks(const toml::node& node, Profile& made) const {
  const auto* found = node.as_array();
  if (found == nullptr) return wrong(at(node), "locked", "a list of keys", type_of(node));
  made.locked.clear();
  for (const toml::node& item : *found) {
    const std::string key = TRY(text_of(at(item), "locked"));
    const bool here = made.numbers.find(key) != nullptr || (key == "thinking" && made.thinking) ||
                      (key == "template_kwargs" && !made.template_kwargs.as_object().empty());
    if (!here) return wrong(at(item), "locked", "keys that this profile sets", in_quotes(key));
    made.locked.push_back(key);
  }
  return {};
}

}  // namespace

Result<Profiles> parse_profiles(std::string_view text, std::string_view source) {
  const auto refused = [](std::string_view where, std::string_view found) {
    return make_error(ErrorCode::invalid_argument,
                      {.what = where, .expected = "TOML", .found = found});
  };
  try {
    const toml::parse_result parsed = toml::parse(text);
    if (parsed) return Reader(source).read(parsed.table());
    std::string found(parsed.error().description());  // it quotes the file, line breaks and all
    std::ranges::replace_if(
        found, [](unsigned char c) { return c < ' '; }, ' ');
    return refused(concat(source, " line ", parsed.error().source().begin.line), found);
  } catch (const BrokenToml&) {
    return refused(source, "a date, a time or a number that is cut off");
  }
}

Result<void> check_profile(const Arguments& arguments, const Profiles& profiles) {
  const auto wanted = arguments.text(kProfileOption.name);
  if (!wanted || profiles.find(*wanted) != nullptr) return {};
  std::string all;
  for (const Profile& profile : profiles.all())
    all += concat(all.empty() ? "" : ", ", profile.name);
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "--profile", .expected = concat("one of ", all), .found = in_quotes(*wanted)});
}

Result<Profiles> read_profiles(const Arguments& arguments) {
  const auto path = arguments.text("profiles");
  if (!path) return Profiles();
  return parse_profiles(TRY(read_text_file(*path, kFileBytesMax)), *path);
}

}  // namespace nibble
