// The formats of JSON Schema as regular expressions, of a bounded number of digits. A state of an
// automaton costs the compiler a look at the whole vocabulary, so counts of letters are few.
#include <algorithm>
#include <iterator>
#include <utility>

#include "grammar/pattern_reader.h"

namespace nibble {

namespace {

struct Format {
  std::string_view name;
  std::string pattern;
};

/// Days by month; 29 February of leap years; no year 0.
std::string date() {
  const std::string year = "(\\d{3}[1-9]|\\d{2}[1-9]\\d|\\d[1-9]\\d{2}|[1-9]\\d{3})";
  const std::string leap =
      "(\\d{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)";
  return "(" + year +
         "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
         "02-(0[1-9]|1\\d|2[0-8]))|" +
         leap + "-02-29)";
}

std::string time() {
  return "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
}

std::string ipv4() {
  const std::string octet = "(25[0-5]|2[0-4]\\d|1\\d{2}|[1-9]?\\d)";
  return "(" + octet + "\\.){3}" + octet;
}

std::string ipv6() {
  std::string out = "(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}";
  for (int before = 0; before <= 6; ++before) {
    const std::string left =
        before == 0 ? ":" : "([0-9a-fA-F]{1,4}:){" + std::to_string(before) + "}";
    out += "|" + left + "(:[0-9a-fA-F]{1,4}){1," + std::to_string(7 - before) + "}";
  }
  return out + "|([0-9a-fA-F]{1,4}:){1,7}:|::)";
}

/// A pattern with a version and a variant, each of one digit.
std::string uuid(const std::string& version, const std::string& variant) {
  const std::string digit = "[0-9A-Fa-f]";
  return digit + "{8}-" + digit + "{4}-" + version + digit + "{3}-" + variant + digit + "{3}-" +
         digit + "{12}";
}

std::string duration() {
  const std::string n = "\\d{1,6}";  // readers count days, and not without a limit
  const std::string clock =
      "T(" + n + "H(" + n + "M(" + n + "S)?)?|" + n + "M(" + n + "S)?|" + n + "S)";
  const std::string days = n + "D";
  return "P(" + n + "W|(" + days + "|" + n + "M(" + days + ")?|" + n + "Y(" + n + "M(" + days +
         ")?)?)(" + clock + ")?|" + clock + ")";
}

const std::string kName = "[A-Za-z0-9]+(-+[A-Za-z0-9]+)*";
const std::string kHost = kName + "(\\." + kName + ")*";
/// RFC 1123, in part: labels of at most 20 characters of the 63 allowed, at most four of them. None
/// has two hyphens after two characters, since such labels ("xn--...") are Punycode, which readers
/// decode.
const std::string kLetter = "[A-Za-z0-9]";
const std::string kInner = "[A-Za-z0-9-]";
const std::string kLabel = kLetter + "(" + kInner + "?" + kLetter + "|" + kInner + "{2}" + kLetter +
                           "|" + kInner + "(" + kLetter + kInner + "|-" + kLetter + ")" + kInner +
                           "{0,15}" + kLetter + ")?";
const std::string kHostname = kLabel + "(\\." + kLabel + "){0,3}";
const std::string kPathCharacter = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
const std::string kTail = "(\\?(" + kPathCharacter + "|[/?])*)?(#(" + kPathCharacter + "|[/?])*)?";

std::string uri() {
  return "[a-zA-Z][a-zA-Z0-9+.-]*:(//" + kHost + "(:\\d{1,4})?(/" + kPathCharacter + "*)*|/?" +
         kPathCharacter + "+(/" + kPathCharacter + "*)*)" + kTail;
}

std::string uri_reference() {
  return concat("(", uri(), "|(/?([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+(/", kPathCharacter,
                "*)*)?", kTail, ")");
}

std::string uri_template() {
  const std::string name = "([A-Za-z0-9_]|%[0-9A-Fa-f]{2})+";
  return "([A-Za-z0-9._~!$&()*+,;=:@/?#-]|%[0-9A-Fa-f]{2}|\\{[+#./;?&]?" + name + "(," + name +
         ")*\\})*";
}

/// Regular expressions that ECMA-262 and every other dialect read: groups without groups inside,
/// classes without ranges.
std::string regex() {
  const std::string character =
      "([A-Za-z0-9 _@%&~:;,<>=!/-]|\\\\[dDwWsS.*+?^$()|{}\\[\\]\\\\]|\\.|"
      "\\[\\^?[A-Za-z0-9_ ,;@%<>!]+\\])";
  const std::string many = "[*+?]?";
  const std::string group = "\\((" + character + many + ")+(\\|(" + character + many + ")+)*\\)";
  const std::string part = "(" + character + "|" + group + ")" + many;
  return "\\^?(" + part + ")*(\\|(" + part + ")+)*\\$?";
}

/// Labels of the letters and digits that every version of IDNA takes as they are.
const std::string kIdnLabel = "[a-z0-9]{1,16}";
const std::string kIdnHostname = kIdnLabel + "(\\." + kIdnLabel + "){0,3}";

/// The international forms take all that these take, and nothing else is written.
constexpr std::pair<std::string_view, std::string_view> kAsciiForms[] = {
    {"idn-email", "email"}, {"iri", "uri"}, {"iri-reference", "uri-reference"}};

/// Pydantic's.
constexpr std::string_view kAnyText[] = {"binary", "password", "path", "file-path",
                                         "directory-path"};

}  // namespace

Result<Pattern> format_pattern(std::string_view format) {
  for (const auto& [international, ascii] : kAsciiForms)
    if (format == international) format = ascii;
  if (std::ranges::find(kAnyText, format) != std::end(kAnyText)) return read_pattern("^[^]*$");
  const std::string base64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";
  const std::string base64url = "([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2}==|[A-Za-z0-9_-]{3}=)?";
  const std::string pointer = "(/([^~/]|~[01])*)*";
  const Format known[] = {
      {"date", date()},
      {"time", time()},
      {"date-time", date() + "T" + time()},
      {"duration", duration()},
      {"ipv4", ipv4()},
      {"ipv6", ipv6()},
      {"uuid", uuid("[0-9A-Fa-f]", "[0-9A-Fa-f]")},
      {"uuid1", uuid("1", "[89ABab]")},
      {"uuid3", uuid("3", "[89ABab]")},
      {"uuid4", uuid("4", "[89ABab]")},
      {"uuid5", uuid("5", "[89ABab]")},
      {"ipvanyaddress", concat("(", ipv4(), "|", ipv6(), ")")},
      {"email", "[A-Za-z0-9_!#$%&'*+/=?^`{|}~-]+(\\.[A-Za-z0-9_!#$%&'*+/=?^`{|}~-]+)*@" + kHost},
      {"hostname", kHostname},
      {"uri", uri()},
      {"url", uri()},  // draft 3's name
      {"uri-reference", uri_reference()},
      {"uri-template", uri_template()},
      {"idn-hostname", kIdnHostname},
      {"regex", regex()},
      {"json-pointer", pointer},
      {"relative-json-pointer", concat("(0|[1-9]\\d{0,8})(#|", pointer, ")")},
      {"base64", base64},
      {"byte", base64},  // OpenAPI's name
      {"base64url", base64url},
  };
  for (const Format& row : known)
    if (row.name == format) return read_pattern(concat("^(", row.pattern, ")$"));
  return Pattern();
}

}  // namespace nibble
