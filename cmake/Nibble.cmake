# nibble_module(NAME SOURCES... DEPENDS...): a folder of src/ as a static library, and its *_test.cc
# as one test program. Test files are found by name, so none can be forgotten.

add_library(nibble_flags INTERFACE)
target_compile_options(nibble_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                                              -ffp-contract=off)
target_include_directories(nibble_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(nibble_flags INTERFACE Threads::Threads)
if(NIBBLE_SANITIZE)
  target_compile_options(nibble_flags INTERFACE -fsanitize=address,undefined
                                                -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(nibble_flags INTERFACE -fsanitize=address,undefined)
endif()
if(NIBBLE_TSAN)
  target_compile_options(nibble_flags INTERFACE -fsanitize=thread)
  target_link_options(nibble_flags INTERFACE -fsanitize=thread)
endif()

# Called from the module's own folder; SOURCES are relative to it.
function(nibble_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;TEST_DEPENDS" ${ARGN})
  set(target nibble_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  target_link_libraries(${target} PUBLIC nibble_flags ${ARG_DEPENDS})
  if(NIBBLE_TESTS)
    file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
    if(tests)
      find_package(GTest REQUIRED)
      add_executable(${target}_test ${tests})
      target_link_libraries(${target}_test PRIVATE ${target} ${ARG_TEST_DEPENDS} GTest::gtest_main)
      target_compile_definitions(${target}_test
                                 PRIVATE NIBBLE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
      add_test(NAME ${name} COMMAND ${target}_test)
    endif()
  endif()
endfunction()
