// Names of folders, and where a user's files go.
#include "cli/options/folders.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace nibble {
namespace {

TEST(Folders, NamesOfPaths) {
  EXPECT_EQ(folder_name("models/tiny"), "tiny");
  EXPECT_EQ(folder_name("models/tiny/"), "tiny");
  EXPECT_EQ(folder_name("/models/other/../tiny/."), "tiny");
  EXPECT_EQ(folder_name("."), std::filesystem::current_path().filename());
}

TEST(Folders, OfTheUser) {
  ::setenv("HOME", "/home/ada", 1);
  ::unsetenv("NIBBLE_TEST_HOME");
  EXPECT_EQ(user_folder("NIBBLE_TEST_HOME", ".local/state"), "/home/ada/.local/state/nibble");
  ::setenv("NIBBLE_TEST_HOME", "relative", 1);  // to be ignored, says the specification
  EXPECT_EQ(user_folder("NIBBLE_TEST_HOME", ".cache"), "/home/ada/.cache/nibble");
  ::setenv("NIBBLE_TEST_HOME", "/other", 1);
  EXPECT_EQ(user_folder("NIBBLE_TEST_HOME", ".cache"), "/other/nibble");
  ::unsetenv("NIBBLE_TEST_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(user_folder("NIBBLE_TEST_HOME", ".cache"), "");
}

}  // namespace
}  // namespace nibble
