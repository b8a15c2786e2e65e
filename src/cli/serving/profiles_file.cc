// TOML to profiles, strictly.
#include "cli/serving/profiles_file.h"

#include <algorithm>

#include "base/file.h"
#include "cli/options/toml_document.h"

namespace nibble {

namespace {

constexpr uint64_t kFileBytesMax = uint64_t{1} << 20;
constexpr size_t kProfilesMax = 64;  // each is a label of the metrics
constexpr size_t kNameBytesMax = 64;

Error unknown_key(const TomlPlace& place, std::string_view key,
                  std::span<const std::string_view> known) {
  const std::string_view near = nearest_name(key, known);
  std::string all;
  for (const auto& name : known) all += concat(all.empty() ? "" : ", ", name);
  return make_error(
      ErrorCode::invalid_argument,
      {.what = place.of(concat("unknown key ", quoted_text(key))),
       .advice = near.empty() ? concat("the keys are ", all) : concat("did you mean ", near, "?")});
}

Result<std::string> text_of(const TomlPlace& place, std::string_view key) {
  if (const auto* text = place.node->as_string()) return text->get();
  return toml_error(place, key, "a string", toml_type(*place.node));
}

Result<std::vector<std::string>> texts_of(const TomlPlace& place, std::string_view key) {
  const auto* list = place.node->as_array();
  if (list == nullptr) return toml_error(place, key, "a list of strings", toml_type(*place.node));
  std::vector<std::string> texts;
  for (const toml::node& item : *list) texts.push_back(TRY(text_of({place.source, &item}, key)));
  return texts;
}

Result<bool> flag_of(const TomlPlace& place, std::string_view key) {
  if (const auto* flag = place.node->as_boolean()) return flag->get();
  return toml_error(place, key, "true or false", toml_type(*place.node));
}

Result<Json> number_of(const TomlPlace& place, const ProfileNumber& row) {
  const bool whole = row.kind == ProfileNumber::Kind::whole;
  const std::string range =
      concat(whole ? "a whole number from " : "a number from ", row.least, " to ", row.most);
  if (const auto* integer = place.node->as_integer()) {
    const auto value = static_cast<double>(integer->get());
    if (!(value >= row.least && value <= row.most))
      return toml_error(place, row.key, range, concat(integer->get()));
    return whole ? Json(integer->get()) : Json(value);
  }
  const auto* real = place.node->as_floating_point();
  if (real == nullptr || whole) return toml_error(place, row.key, range, toml_type(*place.node));
  if (!(real->get() >= row.least && real->get() <= row.most))  // NaN is out of any range
    return toml_error(place, row.key, range, concat(real->get()));
  return Json(real->get());
}

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {
    keys_ = {"name", "base", "thinking", "template_kwargs", "filters", "locked"};
    for (const ProfileNumber& row : profile_numbers()) keys_.push_back(row.key);
  }
  Result<Profiles> read(const toml::table& root);

 private:
  TomlPlace at(const toml::node& node) const { return {source_, &node}; }
  Result<void> list(const toml::node& node);
  Result<void> profile(const toml::node& node);
  Result<std::string> name(const toml::table& table) const;
  Result<Profile> start(const toml::table& table) const;
  Result<void> member(std::string_view key, const toml::node& node, Profile& made) const;
  Result<void> locks(const toml::node& node, Profile& made) const;

  std::string_view source_;
  std::vector<std::string_view> keys_;
  std::vector<std::string> names_;  // names of profiles in this file
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
      return toml_error(at(*node), "default", "the name of a profile", quoted_text(wanted));
    profiles_.set_default(wanted);
  }
  return std::move(profiles_);
}

Result<void> Reader::list(const toml::node& node) {
  const auto* found = node.as_array();
  if (found == nullptr)
    return toml_error(at(node), "profile", "a list of tables", toml_type(node),
                      "write [[profile]]");
  if (found->size() > kProfilesMax)
    return toml_error(at(node), "profile", concat("at most ", kProfilesMax), concat(found->size()));
  for (const toml::node& each : *found) TRY(profile(each));
  return {};
}

Result<void> Reader::profile(const toml::node& node) {
  const auto* table = node.as_table();
  if (table == nullptr)
    return toml_error(at(node), "profile", "a table", toml_type(node), "write [[profile]]");
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
  if (node == nullptr) return toml_error(at(table), "a profile", "a name", "none");
  std::string given = TRY(text_of(at(*node), "name"));
  const bool sane =
      !given.empty() && given.size() <= kNameBytesMax && std::ranges::all_of(given, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || c == '.';
      });
  if (!sane)
    return toml_error(at(*node), "name",
                      concat("1 to ", kNameBytesMax, " letters, digits, '-', '_' or '.'"),
                      quoted_text(given));
  if (std::ranges::find(names_, given) != names_.end())
    return toml_error(at(*node), "name", "each name once", concat(quoted_text(given), " twice"));
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
    return toml_error(at(*node), "base", "a built-in profile or one further up", quoted_text(base));
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
    if (node.as_table() == nullptr) return toml_error(at(node), key, "a table", toml_type(node));
    const Json given = TRY(toml_to_json(at(node), key));
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
  if (found == nullptr) return toml_error(at(node), "locked", "a list of keys", toml_type(node));
  made.locked.clear();
  for (const toml::node& item : *found) {
    const std::string key = TRY(text_of(at(item), "locked"));
    const bool here = made.numbers.find(key) != nullptr || (key == "thinking" && made.thinking) ||
                      (key == "template_kwargs" && !made.template_kwargs.as_object().empty());
    if (!here)
      return toml_error(at(item), "locked", "keys that this profile sets", quoted_text(key));
    made.locked.push_back(key);
  }
  return {};
}

}  // namespace

Result<Profiles> parse_profiles(std::string_view text, std::string_view source) {
  const toml::table root = TRY(parse_toml(text, source));
  return Reader(source).read(root);
}

Result<void> check_profile(const Arguments& arguments, const Profiles& profiles) {
  const auto wanted = arguments.text(kProfileOption.name);
  if (!wanted || profiles.find(*wanted) != nullptr) return {};
  std::string all;
  for (const Profile& profile : profiles.all())
    all += concat(all.empty() ? "" : ", ", profile.name);
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "--profile", .expected = concat("one of ", all), .found = quoted_text(*wanted)});
}

Result<Profiles> read_profiles(const Arguments& arguments) {
  const auto path = arguments.text("profiles");
  if (!path) return Profiles();
  return parse_profiles(TRY(read_text_file(*path, kFileBytesMax)), *path);
}

}  // namespace nibble
