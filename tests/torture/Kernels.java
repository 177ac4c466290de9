// Programs that the JVM turns into machine code while they run, with garbage collection, threads, exceptions that come of faults,
// and stacks that overflow.
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.IntStream;

public class Kernels {
  static long sort(int count) {
    List<Integer> list = new ArrayList<>();
    for (int i = 0; i < count; i++) list.add((int) (i * 7919L % 10007));
    Collections.sort(list);
    long sum = 0;
    for (int value : list) sum = sum * 31 + value;
    return sum;
  }

  static long maps(int count) {
    Map<String, Integer> hashed = new HashMap<>();
    for (int i = 0; i < count; i++) hashed.merge("key " + i % 997, i, Integer::sum);
    long sum = 0;
    for (var entry : new TreeMap<>(hashed).entrySet()) sum = sum * 17 + entry.getValue() + entry.getKey().length();
    return sum;
  }

  static double matrix(int size) {
    double[][] a = new double[size][size], b = new double[size][size], product = new double[size][size];
    for (int i = 0; i < size; i++)
      for (int j = 0; j < size; j++) {
        a[i][j] = i + j;
        b[i][j] = i - j;
      }
    for (int i = 0; i < size; i++)
      for (int k = 0; k < size; k++)
        for (int j = 0; j < size; j++) product[i][j] += a[i][k] * b[k][j];
    double sum = 0;
    for (double[] row : product) for (double value : row) sum += value;
    return sum;
  }

  interface Shape {
    double area();
  }

  record Circle(double radius) implements Shape {
    public double area() {
      return Math.PI * radius * radius;
    }
  }

  record Square(double side) implements Shape {
    public double area() {
      return side * side;
    }
  }

  record Triangle(double base, double height) implements Shape {
    public double area() {
      return base * height / 2;
    }
  }

  static double shapes(int count) {
    Shape[] shapes = new Shape[count];
    for (int i = 0; i < count; i++)
      shapes[i] = i % 3 == 0 ? new Circle(i % 10) : i % 3 == 1 ? new Square(i % 7) : new Triangle(i % 5, i % 3);
    double sum = 0;
    for (int round = 0; round < 20; round++) for (Shape shape : shapes) sum += shape.area();
    return sum;
  }

  static long exceptions(int count) {
    long sum = 0;
    for (int i = 0; i < count; i++) {
      try {
        if (i % 3 == 0) throw new IllegalStateException("number " + i);
        Object object = i % 5 == 0 ? null : "text";
        sum += object.hashCode();
        sum += i / (i % 7);
      } catch (IllegalStateException e) {
        sum += e.getMessage().length();
      } catch (NullPointerException | ArithmeticException e) {
        sum += 7;
      }
    }
    return sum;
  }

  static long threads(int count) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(4);
    List<Future<Long>> futures = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      long start = i;
      futures.add(pool.submit(() -> {
        long x = start;
        for (int round = 0; round < 20000; round++) x = x * 6364136223846793005L + 1442695040888963407L;
        return x;
      }));
    }
    long sum = 0;
    for (Future<Long> future : futures) sum ^= future.get();
    pool.shutdown();
    Map<Integer, Integer> shared = new ConcurrentHashMap<>();
    IntStream.range(0, 50000).parallel().forEach(i -> shared.merge(i % 100, 1, Integer::sum));
    return sum + shared.values().stream().mapToInt(i -> i).sum();
  }

  static long text(int count) {
    StringBuilder builder = new StringBuilder();
    for (int i = 0; i < count; i++) {
      builder.append(i).append(',');
      if (builder.length() > 5000) builder.delete(0, 2500);
    }
    return builder.toString().hashCode() + String.join("-", Collections.nCopies(100, "ab")).split("-").length;
  }

  static long garbage(int count) {
    byte[][] kept = new byte[1000][];
    long sum = 0;
    for (int i = 0; i < count; i++) {
      byte[] block = new byte[1000 + i % 5000];
      block[i % 1000] = (byte) i;
      kept[i % 1000] = block;
      sum += kept[i * 7 % 1000] == null ? 0 : kept[i * 7 % 1000].length;
    }
    return sum;
  }

  static int endless(int[] depth) {
    depth[0]++;
    return endless(depth) + 1;
  }

  static String overflow() {
    try {
      return "returned " + endless(new int[1]);
    } catch (StackOverflowError e) {
      return "overflow";
    }
  }

  public static void main(String[] words) throws Exception {
    for (int round = 0; round < 2; round++) {
      System.out.println("sort " + sort(100000));
      System.out.println("maps " + maps(50000));
      System.out.println("matrix " + matrix(200));
      System.out.println("shapes " + shapes(20000));
      System.out.println("exceptions " + exceptions(100000));
      System.out.println("threads " + threads(200));
      System.out.println("text " + text(200000));
      System.out.println("garbage " + garbage(100000));
      System.out.println("stack " + overflow());
    }
  }
}
