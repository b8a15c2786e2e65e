# Writes OUTPUT, a C++ file with the text of every recipe in FOLDER, so that the program carries
# them wherever it is installed. Run as a build step, again whenever a recipe changes.
file(GLOB recipes ${FOLDER}/*.yaml)
list(SORT recipes)
set(rows "")
foreach(recipe ${recipes})
  get_filename_component(name ${recipe} NAME_WE)
  file(READ ${recipe} text)
  string(APPEND rows "    {\"${name}\", R\"recipe(${text})recipe\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// The files of recipes/; written by embed_recipes.cmake.
#include \"quantize/recipe.h\"

namespace nibble {
std::span<const BuiltinRecipe> builtin_recipes() {
  static constexpr BuiltinRecipe kRecipes[] = {
${rows}  };
  return kRecipes;
}
}  // namespace nibble
")
