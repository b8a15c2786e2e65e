// The status of a recipe is repeated by what runs the file.
#include "cli/loading/recipe_notice.h"

#include <gtest/gtest.h>

#include "testing/test_files.h"

namespace nibble {
namespace {

TEST(RecipeNotice, SaysWhatIsNotForProduction) {
  const TemporaryFolder root;
  EXPECT_EQ(recipe_notice(root.path()), "");
  const auto with = [&](const char* report) {
    write_test_file(root / "quantize_report.json", report);
    return recipe_notice(root.path());
  };
  EXPECT_EQ(with("{"), "");
  EXPECT_EQ(with(R"({"recipe": 3, "recipe_status": "lab"})"), "");
  EXPECT_EQ(with(R"({"recipe": "mixed", "recipe_status": "production"})"), "");
  EXPECT_EQ(with(R"({"recipe": "x", "recipe_status": "lab"})"),
            "recipe x: from the lab, to experiment with\n");
  EXPECT_NE(with(R"({"recipe": "w4a4", "recipe_status": "free-text"})").find("free text only"),
            std::string::npos);
}

}  // namespace
}  // namespace nibble
