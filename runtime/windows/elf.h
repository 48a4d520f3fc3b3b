/* elf.h - of the format of cubins (System V ABI, "Object Files") what runtime/image.c reads. */
#ifndef FL_WINDOWS_ELF_H
#define FL_WINDOWS_ELF_H

#include <stdint.h>

#define ELFMAG "\177ELF"
enum { SELFMAG = 4, EI_NIDENT = 16, EI_CLASS = 4, ELFCLASS64 = 2, SHT_NOBITS = 8, STT_FUNC = 2 };
#define ELF64_ST_TYPE(info) ((info) & 15)

typedef struct {
    unsigned char e_ident[EI_NIDENT];
    uint16_t e_type, e_machine;
    uint32_t e_version;
    uint64_t e_entry, e_phoff, e_shoff;
    uint32_t e_flags;
    uint16_t e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx;
} Elf64_Ehdr;

typedef struct {
    uint32_t sh_name, sh_type;
    uint64_t sh_flags, sh_addr, sh_offset, sh_size;
    uint32_t sh_link, sh_info;
    uint64_t sh_addralign, sh_entsize;
} Elf64_Shdr;

typedef struct {
    uint32_t st_name;
    unsigned char st_info, st_other;
    uint16_t st_shndx;
    uint64_t st_value, st_size;
} Elf64_Sym;

#endif
