// The log's form of bodies: no base64 of an image, all else as it came.
#include "server/images/logged_body.h"

#include <gtest/gtest.h>

#include "base/concat.h"

namespace nibble {
namespace {

TEST(LoggedBody, OtherTextStaysAsItIs) {
  for (const std::string& body :
       {std::string(),
        std::string(R"({"messages":[{"role":"user","content":"a \"b\" \\ c/d\\"}]})"),
        std::string(R"({"content":"\"\"\\\"","x":1.5e-3})"), std::string(127, 'a'),
        std::string("not JSON at all \\"), std::string("\xff\x00 \xc3\xa4", 6)})
    EXPECT_EQ(without_base64(body), body);
}

TEST(LoggedBody, ImagesBecomeTheirLength) {
  std::string coded;
  for (int i = 0; i < 668; ++i) coded.push_back("AZaz09+/"[i * 7 / 3 % 8]);
  for (const size_t size : {size_t{4}, size_t{80}, size_t{400}, size_t{668}}) {
    const std::string data = coded.substr(0, size);
    const std::string mark = concat("[", data.size(), " characters]");
    const std::pair<std::string, std::string> kForms[] = {
        {R"({"url":"data:image/png;base64,)", R"("})"},
        {R"({"type":"base64","media_type":"image/png","data":")", R"("})"},
        {R"({"type":"base64", "data" : ")", R"(", "x": "a b"})"},
        {R"({"url":"data:image/png;base64,)", ""}};  // the client left
    for (const auto& [before, after] : kForms)
      EXPECT_EQ(without_base64(before + data + after), before + mark + after);
  }
  std::string escaped;
  for (const char c : coded) escaped += c == '/' ? std::string("\\/") : std::string(1, c);
  EXPECT_EQ(without_base64(escaped), concat("[", escaped.size(), " characters]"));
  EXPECT_EQ(without_base64(escaped + "\""), concat("[", escaped.size(), " characters]\""));
}

}  // namespace
}  // namespace nibble
