import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.spark.sql.SparkSession;

/** Runs each line of standard input as a query of Spark SQL; answers each with one line, a JSON array of its rows. */
public final class SqlRows {
    public static void main(String[] arguments) throws Exception {
        SparkSession spark = SparkSession.builder().master("local[2]").getOrCreate();
        BufferedReader queries = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String query = queries.readLine(); query != null; query = queries.readLine()) {
            System.out.println("rows\t[" + String.join(",", spark.sql(query).toJSON().collectAsList()) + "]");
        }
        spark.stop();
    }
}
