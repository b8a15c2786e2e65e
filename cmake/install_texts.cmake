# Runs at install time: the manual page and the completions, as the program prints them; in the
# emulator if it is for another processor.
function(install_text folder name)
  file(MAKE_DIRECTORY "${work}")
  execute_process(COMMAND ${emulator} "${program}" ${ARGN} OUTPUT_FILE "${work}/${name}"
                  RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "cannot make ${name}: `${program} ${ARGN}` ended with ${code}")
  endif()
  file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/share/${folder}" TYPE FILE
       FILES "${work}/${name}")
endfunction()

install_text(man/man1 nibble.1 man)
install_text(bash-completion/completions nibble completion bash)
install_text(zsh/vendor-completions _nibble completion zsh)
install_text(fish/vendor_completions.d nibble.fish completion fish)
