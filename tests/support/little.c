/* A guest that is as little as can be: it answers ARP and echo requests for the address on its command line, and each line on its console.
 *
 * A kernel by the Multiboot specification (0.6.96), which QEMU loads with -kernel; an NE2000 at 0x300, a 16550 at 0x3f8. It sleeps until
 * one of them has something, or the timer's next tick. It boots at once where a machine is emulated and has little else, and a few pages
 * are all that a migration moves. What it counts tells that it is the same guest wherever it is. */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

#define NIC 0x300
#define UART 0x3f8
#define FIRST 0x46 /* pages of the NIC's memory: frames that came; one to send is at SEND */
#define LAST 0x80
#define SEND 0x40

__asm__(".text\n"
        ".align 4\n"
        ".long 0x1badb002, 0, -0x1badb002\n" /* Multiboot: magic, flags, checksum */
        ".globl _start\n"
        "_start:\n"
        "  movl $stack + 8192, %esp\n"
        "  pushl %ebx\n"
        "  call guest\n"
        "lower:\n" /* an interrupt is there to wake us, and nothing else */
        "  pushl %eax\n"
        "  movb $0x20, %al\n"
        "  outb %al, $0x20\n"
        "  popl %eax\n"
        "  iret\n"
        "upper:\n"
        "  pushl %eax\n"
        "  movb $0x20, %al\n"
        "  outb %al, $0xa0\n"
        "  outb %al, $0x20\n"
        "  popl %eax\n"
        "  iret\n");

u8 stack[8192];
extern char lower[], upper[];

static u32 descriptors[6] = {0, 0, 0xffff, 0x00cf9a00, 0xffff, 0x00cf9200}; /* null, code, data */
static u32 gates[2 * 48];
static u8 frame[2048], mac[6], address[4];
static char line[64];
static u32 length, heard;

static void out(u16 port, u8 value) { __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }

static u8 in(u16 port) {
  u8 value;
  __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}

static void say(const char *text) {
  for (; *text; text++) {
    while (!(in(UART + 5) & 0x20)) {
    }
    out(UART, *text);
  }
}

static void number(u32 value) {
  char digits[11], *at = digits + 10;
  *at = 0;
  do
    *--at = '0' + value % 10;
  while (value /= 10);
  say(at);
}

static void interrupts(void) {
  struct {
    u16 limit;
    u32 base;
  } __attribute__((packed)) table = {sizeof descriptors - 1, (u32)descriptors}, vectors = {sizeof gates - 1, (u32)gates};
  const u8 words[] = {0x20, 0x11, 0xa0, 0x11, 0x21, 0x20, 0xa1, 0x28, 0x21, 0x04, 0xa1, 0x02, 0x21, 0x01, 0xa1, 0x01, 0x21, 0xea, 0xa1, 0xfd};
  for (u32 each = 0x20; each < 0x30; each++) {
    u32 entry = (u32)(each < 0x28 ? lower : upper);
    gates[2 * each] = 0x00080000 | (entry & 0xffff);
    gates[2 * each + 1] = (entry & 0xffff0000) | 0x8e00;
  }
  for (u32 each = 0; each < sizeof words; each += 2) /* both 8259s: at 0x20 and 0x28; timer, 16550 (4) and NIC (9) alone */
    out(words[each], words[each + 1]);
  __asm__ volatile("lgdt %0\n"
                   "ljmp $8, $1f\n"
                   "1: movl $16, %%eax\n"
                   "movl %%eax, %%ds\n"
                   "movl %%eax, %%es\n"
                   "movl %%eax, %%ss\n"
                   "lidt %1\n" : : "m"(table), "m"(vectors) : "eax", "memory");
  out(0x43, 0x34); /* the 8254: 100 times a second */
  out(0x40, 11932 & 0xff);
  out(0x40, 11932 >> 8);
  out(UART + 2, 0x07); /* FIFOs; tell of what comes */
  out(UART + 4, 0x0b);
  out(UART + 1, 0x01);
}

static void at(u32 start, u32 count, u8 command) {
  out(NIC + 0x08, start & 0xff);
  out(NIC + 0x09, start >> 8);
  out(NIC + 0x0a, count & 0xff);
  out(NIC + 0x0b, count >> 8);
  out(NIC, command);
}

static void fetch(u32 start, u8 *where, u32 count) {
  at(start, count, 0x0a);
  while (count--)
    *where++ = in(NIC + 0x10);
}

static void plug(void) {
  u8 prom[12];
  const u8 words[] = {0x00, 0x21, 0x0e, 0x48, 0x0c, 0x20, 0x0d, 0x02};
  const u8 more[] = {0x01, FIRST, 0x02, LAST, 0x03, FIRST, 0x07, 0xff, 0x0f, 0x01, 0x00, 0x61, 0x07, FIRST + 1};
  const u8 last[] = {0x00, 0x22, 0x0d, 0x00, 0x0c, 0x04};
  out(NIC + 0x1f, in(NIC + 0x1f));
  for (u32 each = 0; each < sizeof words; each += 2)
    out(NIC + words[each], words[each + 1]);
  fetch(0, prom, sizeof prom);
  for (u32 each = 0; each < sizeof more; each += 2)
    out(NIC + more[each], more[each + 1]);
  for (u32 each = 0; each < 6; each++)
    out(NIC + 1 + each, mac[each] = prom[2 * each]);
  for (u32 each = 0; each < sizeof last; each += 2)
    out(NIC + last[each], last[each + 1]);
}

static void copy(u8 *to, const u8 *from, u32 count) {
  while (count--)
    *to++ = *from++;
}

static int same(const u8 *one, const u8 *other, u32 count) {
  while (count && *one == *other)
    one++, other++, count--;
  return !count;
}

static void answer(u32 count) {
  u8 *who = frame + 14;
  if (count >= 42 && same(frame + 12, (const u8 *)"\x08\x06", 2) && who[7] == 1 && same(who + 24, address, 4)) { /* ARP */
    who[7] = 2;
    copy(who + 18, who + 8, 10);
    copy(who + 8, mac, 6);
    copy(who + 14, address, 4);
  } else if (count >= 42 && same(frame + 12, (const u8 *)"\x08\x00\x45", 3) && who[9] == 1 && who[20] == 8 && same(who + 16, address, 4)) {
    u32 sum = (who[22] << 8 | who[23]) + 0x0800;
    sum += sum >> 16;
    copy(who + 16, who + 12, 4);
    copy(who + 12, address, 4);
    who[20] = 0;
    who[22] = sum >> 8;
    who[23] = sum;
  } else
    return;
  copy(frame, frame + 6, 6);
  copy(frame + 6, mac, 6);
  count = count < 60 ? 60 : count;
  at(SEND << 8, count, 0x12);
  for (u32 each = 0; each < count; each++)
    out(NIC + 0x10, frame[each]);
  out(NIC + 0x04, SEND);
  out(NIC + 0x05, count & 0xff);
  out(NIC + 0x06, count >> 8);
  out(NIC, 0x26);
}

static void frames(void) {
  out(NIC + 0x07, 0xff);
  for (;;) {
    u8 head[4];
    u32 page = in(NIC + 0x03) + 1, count;
    page = page == LAST ? FIRST : page;
    out(NIC, 0x62);
    u8 current = in(NIC + 0x07);
    out(NIC, 0x22);
    if (page == current)
      return;
    fetch(page << 8, head, 4);
    count = (head[2] | head[3] << 8) - 4;
    if (count <= sizeof frame) {
      at((page << 8) + 4, count, 0x0a);
      for (u32 each = 0; each < count; each++)
        frame[each] = in(NIC + 0x10);
    }
    out(NIC + 0x03, head[1] == FIRST ? LAST - 1 : head[1] - 1);
    if (count <= sizeof frame)
      answer(count);
  }
}

static void words(void) {
  while (in(UART + 5) & 1) {
    char each = in(UART);
    if (each != '\n' && length < sizeof line - 1) {
      line[length++] = each;
      continue;
    }
    line[length] = 0;
    length = 0;
    say("guest: heard ");
    say(line);
    say(" as line ");
    number(++heard);
    say("\r\n");
  }
}

void guest(const u32 *given) {
  u32 part = 0;
  interrupts();
  plug();
  for (const char *at = (const char *)given[4]; *at; at++) /* the command line: the kernel's name, a space, the address */
    if (*at == ' ')
      part = 0, copy(address, (const u8 *)"\0\0\0\0", 4);
    else if (*at == '.')
      part++;
    else if (part < 4)
      address[part] = 10 * address[part] + *at - '0';
  say("guest: ready\r\n");
  for (;;) {
    frames();
    words();
    __asm__ volatile("sti; hlt; cli");
  }
}
