// Base64 and data URLs as requests have them: right ones, and every way to be wrong.
#include "media/data_url.h"

#include <gtest/gtest.h>

#include "media/image_format.h"
#include "media/testing/test_bytes.h"

namespace nibble {
namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string decoded(std::string_view text) {
  const auto bytes = decode_base64(text, 100);
  return bytes.ok() ? text_of(bytes.value()) : "error: " + bytes.error().message;
}

TEST(Base64, ExamplesOfRfc4648) {
  EXPECT_EQ(decoded(""), "");
  EXPECT_EQ(decoded("Zg=="), "f");
  EXPECT_EQ(decoded("Zm8="), "fo");
  EXPECT_EQ(decoded("Zm9v"), "foo");
  EXPECT_EQ(decoded("Zm9vYmFy"), "foobar");
  EXPECT_EQ(decoded("+/+/"), "\xFB\xFF\xBF");
}

TEST(Base64, WrongTextsAreErrorsThatDoNotRepeatThem) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zm9vYg", "====", "Z===", "Zg==Zg==", "Zm9v\nZm9",
                           "Zm9 ", "Zm_v", "Zm-v", "=Zg=", "Z=g=", "Zm9\xC3"}) {
    const auto bytes = decode_base64(text, 100);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_EQ(bytes.error().code, ErrorCode::invalid_argument) << text;
    EXPECT_TRUE(bytes.error().message.starts_with("base64: expected ")) << bytes.error().message;
  }
  EXPECT_EQ(decoded("Zm9vYm!y"),
            "error: base64: expected A-Z, a-z, 0-9, + and /, with = at the end only, found another "
            "character at position 6; encode the file again, without line breaks");
}

TEST(Base64, LimitIsHeldToTheByte) {
  EXPECT_TRUE(decode_base64("Zm9vYmE=", 5).ok());
  EXPECT_TRUE(decode_base64("Zm9vYmE=", 6).ok());
  const auto more = decode_base64("Zm9vYmE=", 4);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().message,
            "encoded image or video: expected at most 4 bytes, found 5; send a smaller file");
}

TEST(DataUrl, BytesWhateverTheType) {
  for (const auto& [url, bytes] : {std::pair("data:image/PNG;base64,Zm9v", "foo"),
                                   {"DATA:image/jpeg;name=a.jpg;charset=x;BASE64,Zg==", "f"},
                                   {"data:;base64,", ""}}) {
    const auto found = parse_data_url(url, 100);
    ASSERT_TRUE(found.ok()) << url;
    EXPECT_EQ(text_of(found.value()), bytes);
  }
}

TEST(DataUrl, OtherFormsAreErrors) {
  for (const char* url : {"", "data", "data:", "http://x/a.png", "data:image/png;base64"})
    EXPECT_EQ(parse_data_url(url, 100).error().code, ErrorCode::invalid_argument) << url;
  for (const char* url : {"data:image/png,Zg==", "data:,", "data:image/png;base64;x,Zg=="})
    EXPECT_EQ(parse_data_url(url, 100).error().code, ErrorCode::unsupported) << url;
  EXPECT_FALSE(parse_data_url("data:image/png;base64,Z", 100).ok());
  EXPECT_FALSE(parse_data_url("data:image/png;base64,Zm9v", 2).ok());
  EXPECT_FALSE(parse_data_url("data:" + std::string(2000, 'x') + ";base64,Zm9v", 100).ok());
}

TEST(ImageFormat, IsToldByTheBytes) {
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(sniff_image_format(bytes_of("\xFF\xD8\xFF\xE0"sv)).value(), ImageFormat::jpeg);
  EXPECT_EQ(sniff_image_format(bytes_of("\x89PNG\r\n\x1A\n"sv)).value(), ImageFormat::png);
  EXPECT_EQ(sniff_image_format(bytes_of("GIF87a"sv)).value(), ImageFormat::gif);
  EXPECT_EQ(sniff_image_format(bytes_of("GIF89a\1"sv)).value(), ImageFormat::gif);
  EXPECT_EQ(sniff_image_format(bytes_of("RIFF\0\0\0\0WEBPVP8L"sv)).value(), ImageFormat::webp);
}

TEST(ImageFormat, OthersAreNamed) {
  using std::string_view_literals::operator""sv;
  struct Case {
    std::string_view bytes;
    std::string_view name;
  };
  for (const Case& c : {Case{"BM\1\2"sv, "BMP"}, Case{"II*\0"sv, "TIFF"}, Case{"MM\0*"sv, "TIFF"},
                        Case{"\0\0\0\x20"
                             "ftypavif"sv,
                             "AVIF"},
                        Case{"\0\0\0\x20"
                             "ftypheic"sv,
                             "HEIC"},
                        Case{"\0\0\0\x20"
                             "ftypmif1"sv,
                             "HEIC"},
                        Case{"\0\0\0\x20"
                             "ftypisom"sv,
                             "a video"},
                        Case{"<svg xmlns="sv, "SVG"}, Case{"\xEF\xBB\xBF <?xml ?>\n<svg"sv, "SVG"},
                        Case{"%PDF-1.7"sv, "PDF"}, Case{"RIFF\0\0\0\0WAVEfmt "sv, "another format"},
                        Case{"\xFF\xD8"sv, "another format"}, Case{"hello"sv, "another format"}}) {
    const auto format = sniff_image_format(bytes_of(c.bytes));
    ASSERT_FALSE(format.ok()) << c.name;
    EXPECT_EQ(format.error().code, ErrorCode::unsupported);
    EXPECT_EQ(format.error().message, concat("image: expected JPEG, PNG, WebP or GIF, found ",
                                             c.name, "; convert it to one of these formats"));
  }
  EXPECT_EQ(sniff_image_format({}).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace nibble
